// Session files of other models, of other sizes and full of damage: refused with a reason, or read safely; whatever is
// live goes on.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "door.h"
#include "same_future.h"
#include "session/file.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

using Json = nlohmann::ordered_json;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

uint32_t crc_of(std::string_view bytes) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

template <typename T>
T at(const std::string& bytes, size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

template <typename T>
void put(std::string& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

void repair_preamble(std::string& bytes) { put(bytes, 36, crc_of(std::string_view(bytes).substr(0, 36))); }

// A file taken apart, and put together again with checksums that are right.
struct Parts {
  Json header;
  std::vector<std::string> sections;

  explicit Parts(const std::string& bytes) {
    const auto offset = at<uint64_t>(bytes, 16);
    header = Json::parse(bytes.substr(offset));
    size_t begin = session::kPreambleBytes;
    for (const Json& section : header["sections"]) {
      const auto n = section["bytes"].get<size_t>();
      sections.push_back(bytes.substr(begin, n));
      begin += n;
    }
  }
  std::string pack(bool true_sizes = true) const {
    Json changed = header;
    std::string bytes(session::kPreambleBytes, '\0');
    Json& list = changed["sections"];
    for (size_t i = 0; i < sections.size(); ++i) {
      const bool is_listed = list.is_array() && i < list.size() && list[i].is_object();
      if (is_listed && true_sizes)
        list[i]["bytes"] = sections[i].size();
      if (is_listed)
        list[i]["crc32"] = crc_of(sections[i]);
      bytes += sections[i];
    }
    return finish(bytes, changed.dump());
  }
  static std::string finish(std::string bytes, const std::string& text) {
    const uint64_t offset = bytes.size();
    bytes += text;
    std::memcpy(bytes.data(), session::kFileMagic.data(), session::kFileMagic.size());
    put(bytes, 8, session::kFileVersion);
    put(bytes, 12, static_cast<uint32_t>(text.size()));
    put(bytes, 16, offset);
    put(bytes, 24, static_cast<uint64_t>(bytes.size()));
    put(bytes, 32, crc_of(text));
    repair_preamble(bytes);
    return bytes;
  }
};

class Damaged : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(make_tiny_weights(shape()), dir_.file("tiny.gguf"));
    model_ = open_model(dir_.file("tiny.gguf"), 1);
    live_ = begun();
    control_ = begun();
    must(live_->save(path()));
    bytes_ = read_file(path());
  }
  static TinyOptions shape() {
    return {.n_layers = 2, .n_heads = 2, .n_kv_heads = 1, .n_embd = 64, .n_ff = 64, .seed = 4};
  }
  std::string path() const { return dir_.file("a.kedge"); }
  std::unique_ptr<Session> begun() const {
    SessionOptions options =
        session_options({.budget = "40KiB", .policy = "andpro:window=4", .prompt = 100, .generated = 50});
    auto session = open_session(*model_, options);
    session->set_sampler(
        {.temperature = 1, .repeat_penalty = 1.2F, .repeat_last_n = 8, .length_penalty = 1.5F, .seed = 2});
    must(session->prefill(random_tokens(100, 1)));
    for (int i = 0; i < 20; ++i)
      must(session->decode(session->sample()));
    return session;
  }
  // The reason why these bytes are refused. Empty: they were read, and the session that they made works.
  std::string why(const std::string& bytes) {
    const std::string name = dir_.file("damaged.kedge");
    write_file(name, bytes);
    Result<std::unique_ptr<Session>> session = Session::restore(*model_, name);
    if (!session.ok()) {
      const std::string& message = session.error().message;
      EXPECT_TRUE(message.starts_with(name)) << message;
      EXPECT_GT(message.size(), name.size() + 10);
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      return message.substr(name.size());
    }
    for (int i = 0; i < 3; ++i) {
      const Token token = (*session)->logits().empty() ? 1 : (*session)->sample();
      if (!(*session)->decode(token).ok())  // a full context, a budget that a changed answer length made too small
        break;
    }
    const Stats stats = (*session)->stats();
    EXPECT_LE(stats.kv_live_bytes, stats.kv_budget_bytes);
    EXPECT_EQ((*session)->n_tokens(), static_cast<int64_t>((*session)->tokens().size()));
    return "";
  }
  void expect_unharmed() { expect_same_future(*live_, *control_); }

  TempDir dir_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Session> live_;
  std::unique_ptr<Session> control_;
  std::string bytes_;
};

TEST_F(Damaged, TheTestTakesFilesApartRight) {
  EXPECT_EQ(why(bytes_), "");
  EXPECT_EQ(why(Parts(bytes_).pack()), "");
}

TEST_F(Damaged, ALengthPenaltyComesBackAndAFileOfBeforeItHasNone) {
  Parts parts(bytes_);
  const auto penalty = [&] {
    write_file(dir_.file("b.kedge"), parts.pack());
    const auto session = Session::restore(*model_, dir_.file("b.kedge"));
    return session.ok() ? (*session)->sampler().length_penalty : 0.0F;
  };
  EXPECT_EQ(penalty(), 1.5F);
  parts.header["sampler"].erase("length_penalty");
  EXPECT_EQ(penalty(), 1.0F);
  parts.header["sampler"]["length_penalty"] = "long";
  EXPECT_NE(why(parts.pack()).find("'sampler.length_penalty': found \"long\""), std::string::npos);
}

TEST_F(Damaged, AnotherModelIsRefusedWithBothNames) {
  const auto refused = [&](const TinyOptions& other) {
    write_tiny_model(make_tiny_weights(other), dir_.file("other.gguf"));
    const auto model = open_model(dir_.file("other.gguf"), 1);
    const Result<std::unique_ptr<Session>> session = Session::restore(*model, path());
    EXPECT_FALSE(session.ok());
    if (session.ok())
      return std::string();
    EXPECT_EQ(session.error().code, ErrorCode::usage);
    return session.error().message;
  };
  TinyOptions other = shape();
  other.seed = 5;  // other weights in the same shapes
  const std::string saved = Parts(bytes_).header["model"]["sha256"].get<std::string>().substr(0, 16);
  const std::string message = refused(other);
  EXPECT_NE(message.find(saved), std::string::npos) << message;
  const size_t second = message.rfind("sha256 ");
  EXPECT_NE(message.substr(second + 7, 16), saved) << message;
  other = shape();
  other.n_layers = 3;
  const std::string deeper = refused(other);
  EXPECT_NE(deeper.find("2 layers"), std::string::npos) << deeper;
  EXPECT_NE(deeper.find("3 layers"), std::string::npos) << deeper;
}

TEST_F(Damaged, MistakesNameThePartWhatWasFoundAndWhatIsAllowed) {
  const auto with = [&](auto&& change) {
    Parts parts(bytes_);
    change(parts);
    return why(parts.pack());
  };
  const auto expect_words = [](const std::string& message, std::initializer_list<const char*> words) {
    for (const char* word : words)
      EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
  };
  expect_words(with([](Parts& p) { p.header["n_tokens"] = -3; }), {"'n_tokens'", "-3", "0..2147483647"});
  expect_words(with([](Parts& p) { p.header["options"]["cache_type_k"] = "q9"; }), {"q9", "f16", "bf16"});
  expect_words(with([](Parts& p) { p.header["options"]["cache_type_k"] = "bf16"; }),
               {"row type", "found f16, allowed bf16 K with f16 V"});
  expect_words(with([](Parts& p) { p.header["options"]["policy"] = "andpor"; }), {"andpor", "andpro"});
  expect_words(with([](Parts& p) { p.header["policy"] = "snapkv"; }), {"'policy'", "snapkv", "andpro"});
  expect_words(with([](Parts& p) { p.header["options"]["budget"]["value"] = 9000; }), {"budget"});
  expect_words(with([](Parts& p) { p.header["options"]["overflow"] = "explode"; }), {"explode", "truncate"});
  expect_words(with([](Parts& p) { p.header["options"].erase("seed"); }), {"'options.seed'", "not there"});
  expect_words(with([](Parts& p) { p.header["evicted_rows"] = 7; }), {"'evicted_rows'", "found 7"});
  expect_words(with([](Parts& p) { p.header["n_observed"] = 5; }), {"observed", "found", "allowed"});
  expect_words(with([](Parts& p) { put(p.sections[0], 8, int32_t{100000}); }), {"'tokens'", "100000", "319"});
  expect_words(with([](Parts& p) { p.sections[1].resize(8); }), {"'logits'", "found 8", "1280"});
  // The first head: its types, number of notes, rows of body and tail, positions.
  const size_t head = 2 * 8 + 12;
  expect_words(with([&](Parts& p) { put(p.sections[6], head + 4, int32_t{119}); }),
               {"'rows'", "layer 0 head 0", "position of row 1", "allowed 120..119"});
  expect_words(with([&](Parts& p) { put(p.sections[6], head + 4, int32_t{120}); }), {"position of row 0", "found 120"});
  expect_words(with([&](Parts& p) { put(p.sections[6], head - 4, uint32_t{1U << 30}); }), {"n_rows", "1073741824"});
  expect_words(with([&](Parts& p) { put(p.sections[6], 0, uint64_t{1} << 60); }), {"head 0", "1152921504606846976"});
  expect_words(with([](Parts& p) { put(p.sections[3], 0, NAN); }), {"observed", "finite"});
  expect_words(with([](Parts& p) {
                 p.sections.pop_back();
                 p.header["sections"].erase(7);
               }),
               {"sections", "found 7", "8"});

  std::string version = bytes_;
  put(version, 8, session::kFileVersion + 1);
  repair_preamble(version);
  expect_words(why(version), {"version", "found 4", "allowed 3"});
  expect_words(why("GGUF"), {"KEDGESES"});
  expect_words(why(""), {"KEDGESES"});
  expect_words(why(bytes_.substr(0, bytes_.size() - 1)), {"size", std::to_string(bytes_.size() - 1).c_str()});
  expect_words(why(bytes_ + "x"), {"size", std::to_string(bytes_.size() + 1).c_str()});
  EXPECT_FALSE(Session::restore(*model_, dir_.file("nothing")).ok());
  EXPECT_FALSE(Session::restore(*model_, "/dev/null").ok());
  expect_unharmed();
}

TEST_F(Damaged, EachOfFiveThousandFlippedBitsIsFound) {
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    // The first and last bytes of everything, then anywhere.
    const size_t n = bytes_.size();
    const size_t where = i < 100   ? static_cast<size_t>(i)
                         : i < 200 ? n - 1 - static_cast<size_t>(i - 100)
                                   : random() % n;
    std::string damaged = bytes_;
    damaged[where] = static_cast<char>(damaged[where] ^ (1 << random() % 8));
    ASSERT_NE(why(damaged), "") << "byte " << where;
  }
  expect_unharmed();
}

TEST_F(Damaged, ATruncatedFileIsFound) {
  std::vector<size_t> borders = {0, session::kPreambleBytes, at<uint64_t>(bytes_, 16), bytes_.size()};
  size_t end = session::kPreambleBytes;
  for (const std::string& section : Parts(bytes_).sections)
    borders.push_back(end += section.size());
  int tried = 0;
  for (const size_t border : borders) {
    for (size_t n = border - std::min<size_t>(border, 40); n < std::min(border + 40, bytes_.size()); ++n, ++tried)
      ASSERT_NE(why(bytes_.substr(0, n)), "") << n;
  }
  EXPECT_GT(tried, 500);
  expect_unharmed();
}

// Every field of the header in turn becomes something else, under checksums that are right.
void each_field(Json& json, const std::function<void(Json& field)>& visit) {
  for (auto& item : json.items()) {
    if (item.value().is_structured())
      each_field(item.value(), visit);
    visit(item.value());
  }
}

TEST_F(Damaged, AHeaderThatLiesIsRefusedOrReadSafely) {
  const std::vector<Json> values = {nullptr,
                                    true,
                                    -1,
                                    0,
                                    1,
                                    2147483647,
                                    2147483648U,
                                    INT64_MIN,
                                    INT64_MAX,
                                    UINT64_MAX,
                                    1e308,
                                    -1e-300,
                                    "",
                                    "x",
                                    Json::array(),
                                    Json::object(),
                                    Json::array({1, 2, 3}),
                                    std::string(70000, 'a')};
  int n_fields = 0;
  Json counted = Parts(bytes_).header;
  each_field(counted, [&](Json&) { ++n_fields; });
  int refused = 0;
  for (int wanted = 0; wanted < n_fields; ++wanted) {
    for (const Json& value : values) {
      Parts parts(bytes_);
      int at_field = 0;
      Json changed = parts.header;
      each_field(changed, [&](Json& field) {
        if (at_field++ == wanted)
          field = value;
      });
      parts.header = changed;
      refused += why(parts.pack(false)).empty() ? 0 : 1;
    }
  }
  EXPECT_GT(n_fields, 70);
  EXPECT_GT(refused, n_fields * static_cast<int>(values.size()) / 2);
  EXPECT_NE(why(Parts::finish(std::string(session::kPreambleBytes, '\0'), std::string(200000, '['))), "");
  expect_unharmed();
}

TEST_F(Damaged, ContentsUnderRightChecksumsAreRefusedOrReadSafely) {
  std::mt19937 random(7);
  const Parts whole(bytes_);
  for (int i = 0; i < 1600; ++i) {
    Parts parts = whole;
    std::string& section = parts.sections[static_cast<size_t>(random() % parts.sections.size())];
    const int kind = static_cast<int>(random() % 5);
    const size_t where = section.empty() ? 0 : random() % section.size();
    if (kind == 0 && !section.empty())
      section[where] = static_cast<char>(random());
    else if (kind == 1)
      section.insert(where, std::string(1 + random() % 40, static_cast<char>(random())));
    else if (kind == 2)
      section.erase(where, 1 + random() % 40);
    else if (section.size() >= 8)  // a number: one of the many that sizes and positions are made of
      put(section, where % (section.size() - 7) / 4 * 4,
          static_cast<uint32_t>(random() % 3 == 0 ? random() : ~0U - random() % 4));
    (void)why(parts.pack());
  }
  expect_unharmed();
}

TEST_F(Damaged, APreambleThatLiesIsRefused) {
  std::mt19937 random(3);
  for (int i = 0; i < 600; ++i) {
    std::string damaged = bytes_;
    const size_t field = 8 + 4 * (random() % 7);
    const uint32_t value =
        static_cast<uint32_t>(random() % 2 == 0 ? random() : at<uint32_t>(damaged, field) + random() % 7 - 3);
    const bool same = value == at<uint32_t>(damaged, field);
    put(damaged, field, value);
    repair_preamble(damaged);
    ASSERT_EQ(why(damaged).empty(), same) << "field at " << field << ": " << value;
  }
  expect_unharmed();
}

TEST_F(Damaged, AFileThatCannotBeWrittenLeavesTheOldOneAndTheSessionAsTheyAre) {
  EXPECT_FALSE(live_->save(dir_.file("no/such/folder/a.kedge")).ok());
  EXPECT_FALSE(live_->save("/dev/null").ok());
  EXPECT_EQ(read_file(path()), bytes_);
  expect_unharmed();
}

}  // namespace
}  // namespace kedge::test
