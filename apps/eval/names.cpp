#include "eval/names.h"

namespace kedge::eval {
namespace {

constexpr std::string_view kAdjectives[] = {
    "amber",  "ancient", "brave",  "bright",  "broad",  "calm",   "careful", "cheerful", "clever", "cold",   "cosmic",
    "crisp",  "curious", "daring", "distant", "eager",  "early",  "elegant", "faint",    "famous", "fierce", "frozen",
    "gentle", "giant",   "golden", "grand",   "happy",  "hidden", "hollow",  "humble",   "icy",    "jolly",  "keen",
    "lively", "lonely",  "loud",   "lucky",   "mellow", "mighty", "misty",   "modest",   "narrow", "noble",  "odd",
    "pale",   "patient", "plain",  "polite",  "proud",  "quick",  "quiet",   "rapid",    "rare",   "royal",  "rustic",
    "secret", "sharp",   "silent", "silver",  "simple", "sleepy", "smooth",  "solid",    "steady", "sunny",  "swift",
    "tall",   "tender",  "tidy",   "tiny",    "vast",   "warm",   "wild",    "wise",     "young",  "zesty"};

constexpr std::string_view kNouns[] = {
    "anchor",  "apple",   "arrow",   "badger",  "barrel", "basket", "beacon", "beetle",  "bridge", "bucket", "button",
    "candle",  "canyon",  "carpet",  "castle",  "cherry", "circle", "cloud",  "comet",   "copper", "coral",  "cottage",
    "crystal", "desert",  "dolphin", "dragon",  "eagle",  "engine", "falcon", "feather", "fiddle", "forest", "fossil",
    "garden",  "glacier", "hammer",  "harbor",  "hazel",  "helmet", "island", "jacket",  "jungle", "kettle", "ladder",
    "lantern", "lemon",   "library", "lion",    "magnet", "maple",  "marble", "meadow",  "mirror", "monkey", "mountain",
    "needle",  "ocean",   "olive",   "orchard", "otter",  "parrot", "pebble", "pencil",  "pepper", "piano",  "pigeon",
    "planet",  "pocket",  "prairie", "puzzle",  "rabbit", "raven",  "ribbon", "river",   "rocket", "saddle", "sailor",
    "shadow",  "spider",  "temple",  "thunder", "tiger",  "tunnel", "turtle", "valley",  "velvet", "violin", "walnut",
    "whistle", "willow",  "window",  "winter",  "wizard"};

constexpr std::string_view kGivenNames[] = {
    "Ada",    "Amara",  "Anton",  "Bela",  "Bruno",  "Carla",   "Cedric", "Chiara", "Dalia", "Dario", "Edith", "Elio",
    "Emil",   "Esther", "Farid",  "Fiona", "Greta",  "Gustav",  "Hanna",  "Hugo",   "Ida",   "Igor",  "Irene", "Jonas",
    "Judith", "Kamil",  "Karin",  "Lars",  "Leila",  "Lorenz",  "Lucia",  "Magnus", "Marta", "Milan", "Mona",  "Nadia",
    "Nils",   "Olga",   "Oscar",  "Paula", "Pavel",  "Quentin", "Rafael", "Rosa",   "Samir", "Selma", "Sofia", "Stefan",
    "Tamara", "Theo",   "Ulrich", "Vera",  "Viktor", "Wanda",   "Xenia",  "Yara",   "Yusuf", "Zelda"};

constexpr std::string_view kSurnames[] = {
    "Abrams", "Albin",  "Arden",  "Barlow",  "Becker",  "Birch",  "Calder", "Castell", "Corbin",    "Dalton",
    "Dorn",   "Draper", "Ekman",  "Ellery",  "Farrow",  "Fenn",   "Galway", "Garland", "Hale",      "Hartmann",
    "Holt",   "Ibsen",  "Ivers",  "Jansen",  "Jarvis",  "Keller", "Kovac",  "Lambert", "Lindqvist", "Locke",
    "Marlow", "Mercer", "Moreau", "Nash",    "Norwood", "Oakes",  "Orlov",  "Parrish", "Petrov",    "Quill",
    "Ramsey", "Rossi",  "Rowan",  "Salter",  "Stone",   "Sutter", "Talbot", "Thorne",  "Ulmer",     "Vance",
    "Vogel",  "Waring", "Weller", "Winslow", "Yates",   "Zeller"};

constexpr std::string_view kCities[] = {
    "Athens", "Bergen",  "Berlin",   "Boston",  "Bristol", "Cairo",    "Chicago",   "Dakar",    "Delhi",  "Dublin",
    "Geneva", "Glasgow", "Hamburg",  "Hanoi",   "Havana",  "Helsinki", "Istanbul",  "Jakarta",  "Kyiv",   "Lagos",
    "Lima",   "Lisbon",  "London",   "Lyon",    "Madrid",  "Manila",   "Milan",     "Montreal", "Moscow", "Mumbai",
    "Munich", "Nairobi", "Naples",   "Osaka",   "Oslo",    "Paris",    "Perth",     "Porto",    "Prague", "Quito",
    "Riga",   "Rome",    "Santiago", "Seoul",   "Seville", "Sofia",    "Stockholm", "Sydney",   "Tokyo",  "Toronto",
    "Tunis",  "Turin",   "Vienna",   "Vilnius", "Warsaw",  "Zagreb",   "Zurich"};

constexpr std::string_view kItems[] = {
    "accordion",   "atlas",      "banner",    "barometer",  "bicycle",   "blanket",  "boat",       "brooch",   "camera",
    "candlestick", "carpet",     "cello",     "chessboard", "clock",     "coat",     "compass",    "crown",    "cup",
    "dagger",      "diary",      "drum",      "easel",      "flag",      "flute",    "globe",      "guitar",   "hammer",
    "harp",        "helmet",     "kite",      "ladder",     "lamp",      "lantern",  "letter",     "map",      "mask",
    "medal",       "microscope", "mirror",    "necklace",   "notebook",  "painting", "parcel",     "piano",    "pistol",
    "radio",       "ring",       "rug",       "saddle",     "sculpture", "sextant",  "shield",     "spyglass", "statue",
    "suitcase",    "sword",      "telescope", "tent",       "toolbox",   "trumpet",  "typewriter", "umbrella", "vase",
    "violin",      "wagon",      "watch"};

constexpr std::string_view kCompanies[] = {"Works", "Labs", "Trading", "Press", "Systems"};

std::string uuid(Random& random) {
  std::string text;
  for (int i = 0; i < 32; ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20)
      text += '-';
    const auto digit = static_cast<size_t>(random.below(16));
    // RFC 4122, version 4: the version and two bits of the variant are fixed.
    text += "0123456789abcdef"[i == 12 ? 4 : i == 16 ? 8 + digit % 4 : digit];
  }
  return text;
}

}  // namespace

NameKind name_kind(std::string_view text) {
  return text == "words" ? NameKind::words : text == "uuids" ? NameKind::uuids : NameKind::numbers;
}

template <typename Make>
std::string Names::fresh(Make make) {
  std::string name = make();
  while (!seen_.insert(name).second)
    name = make();
  return name;
}

std::string Names::digits(int n) {
  return fresh([this, n] {
    std::string text(1, static_cast<char>('1' + random_.below(9)));
    while (text.size() < static_cast<size_t>(n))
      text += static_cast<char>('0' + random_.below(10));
    return text;
  });
}

std::string Names::draw(NameKind kind) {
  if (kind == NameKind::numbers)
    return digits(7);
  return fresh([this, kind] {
    if (kind == NameKind::uuids)
      return uuid(random_);
    const std::string adjective(random_.pick(kAdjectives));
    return adjective + "-" + std::string(random_.pick(kNouns));
  });
}

std::string Names::person() {
  const std::string given = fresh([this] { return std::string(random_.pick(kGivenNames)); });
  return given + " " + fresh([this] { return std::string(random_.pick(kSurnames)); });
}

std::string Names::variable() {
  return fresh([this] {
    std::string text;
    while (text.size() < 5)
      text += static_cast<char>('A' + random_.below(26));
    return text;
  });
}

std::string Names::company() {
  std::string name = fresh([this] { return std::string(random_.pick(kNouns)); });
  name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name + " " + std::string(random_.pick(kCompanies));
}

std::string Names::city() {
  return fresh([this] { return std::string(random_.pick(kCities)); });
}

std::string Names::item() {
  return fresh([this] { return std::string(random_.pick(kItems)); });
}

}  // namespace kedge::eval
