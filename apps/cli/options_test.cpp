#include "options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "engine.h"
#include "help.h"
#include "presets.h"

namespace kedge::cli {
namespace {

using Words = std::vector<std::string>;

Environment fake(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

Result<Settings> read(const Words& words, const std::map<std::string, std::string>& environment = {}) {
  return read_settings(kRun, words, fake(environment));
}

std::string error_of(const Words& words, const std::map<std::string, std::string>& environment = {}) {
  const Result<Settings> result = read(words, environment);
  if (result.ok())
    return "no error";
  EXPECT_EQ(result.error().code, ErrorCode::usage);
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  return result.error().message;
}

class TempFile {
 public:
  explicit TempFile(const std::string& content) : path_(testing::TempDir() + "kedge_options_test.toml") {
    std::ofstream(path_) << content;
  }
  ~TempFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(OptionTable, NamesAreUnique) {
  std::map<std::string_view, unsigned> seen;  // the verbs that have a row of this name
  for (const OptionSpec& row : option_table()) {
    EXPECT_TRUE(row.name.starts_with("--")) << row.name;
    EXPECT_EQ(seen[row.name] & row.verbs, 0U) << row.name;
    seen[row.name] |= row.verbs;
    if (!row.short_name.empty()) {
      EXPECT_EQ(seen[row.short_name] & row.verbs, 0U) << row.short_name;
      seen[row.short_name] |= row.verbs;
    }
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_NE(row.verbs, 0U) << row.name;
  }
}

TEST(OptionTable, DefaultsAreValidValues) {
  for (const OptionSpec& row : option_table()) {
    const std::string text = default_text(row);
    Settings settings;
    if (!text.empty()) {
      EXPECT_TRUE(assign(row, text, row.name, settings).ok()) << row.name << " " << text;
    }
  }
}

TEST(OptionTable, DerivedNames) {
  for (const OptionSpec& row : option_table()) {
    if (row.name != "--kv-budget")
      continue;
    EXPECT_EQ(row.key(), "kv-budget");
    EXPECT_EQ(row.env_name(), "KEDGE_KV_BUDGET");
  }
}

TEST(OptionTable, EveryHelpPageNamesItsFlags) {
  const std::string reference = markdown_page();
  for (const OptionSpec& row : option_table()) {
    EXPECT_NE(reference.find(row.name), std::string::npos) << row.name;
    for (const VerbSpec& verb : verbs()) {
      const bool listed = help_page(verb).find(std::string(row.name)) != std::string::npos;
      if ((row.verbs & verb.bit) != 0) {
        EXPECT_TRUE(listed) << verb.name << " " << row.name;
      }
    }
  }
}

TEST(ReadSettings, FlagsAsInLlamaCpp) {
  const Result<Settings> settings =
      read({"-m", "x.gguf", "-c", "100", "-n", "-1", "-ub", "64", "-ctk", "bf16", "--temp", "0", "-p", "-1", "-v"});
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  EXPECT_EQ(settings->model, "x.gguf");
  EXPECT_EQ(settings->ctx_size, 100);
  EXPECT_EQ(settings->predict, -1);
  EXPECT_EQ(settings->ubatch_size, 64);
  EXPECT_EQ(settings->cache_type_k, "bf16");
  EXPECT_EQ(settings->temperature, 0.0F);
  EXPECT_EQ(settings->prompt, "-1");
  EXPECT_TRUE(settings->verbose);
  EXPECT_FALSE(settings->file.has_value());
}

TEST(ReadSettings, EmptyAndOddValues) {
  EXPECT_EQ(read({"-p", ""})->prompt, "");
  EXPECT_EQ(read({"--prompt="})->prompt, "");
  EXPECT_EQ(read({"-p", "--nosuch"})->prompt, "--nosuch");
  EXPECT_EQ(read({"-p", "[a, b]"})->prompt, "[a, b]");
  EXPECT_EQ(read({"-p", "{}"})->prompt, "{}");
  EXPECT_EQ(read({"-p", " \"quoted\" \n line"})->prompt, " \"quoted\" \n line");
  EXPECT_EQ(read({"-f", "-"})->file, "-");
  EXPECT_EQ(read({"-n", "1", "-n", "2"})->predict, 2);  // the last one counts
  EXPECT_EQ(read({"--kv-budget=-1MiB"})->kv_budget, "-1MiB");
}

TEST(ReadSettings, AListTakesEveryOccurrence) {
  const Result<Settings> settings =
      read({"--question", "[a,b]", "-p", "--question", "--question=", "-n", "3", "--question", "a b"});
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  EXPECT_EQ(settings->questions, (Words{"[a,b]", "", "a b"}));
  EXPECT_EQ(settings->prompt, "--question");
  EXPECT_EQ(read({}, {{"KEDGE_QUESTION", "one"}})->questions, (Words{"one"}));
  EXPECT_EQ(read({"--question", "two"}, {{"KEDGE_QUESTION", "one"}})->questions, (Words{"two"}));
  EXPECT_NE(error_of({"--question"}), "no error");
}

TEST(ReadSettings, CommandLineThenEnvironmentThenFileThenDefault) {
  const TempFile file("temp = 0.25\ntop-k = 7\nmin-p = 0.5\nprompt = \"from file\"\nchat = true\n");
  const std::map<std::string, std::string> environment = {
      {"KEDGE_CONFIG", file.path()}, {"KEDGE_TOP_K", "8"}, {"KEDGE_TEMP", "0.75"}};
  const Result<Settings> settings = read({"--temp", "0.5"}, environment);
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  EXPECT_EQ(settings->temperature, 0.5F);
  EXPECT_EQ(settings->top_k, 8);
  EXPECT_EQ(settings->min_p, 0.5F);
  EXPECT_EQ(settings->prompt, "from file");
  EXPECT_TRUE(settings->chat);
  EXPECT_EQ(settings->top_p, 0.95F);
}

TEST(ReadSettings, APresetFillsWhatIsGivenNowhere) {
  const auto values = [](const Result<Settings>& s) {
    EXPECT_TRUE(s.ok());
    return std::vector<float>{s->temperature, s->repeat_penalty, s->length_penalty};
  };
  const std::vector<float> compressed = {0.5F, 1.2F, 1.1F};
  EXPECT_EQ(values(read({})), (std::vector<float>{0.8F, 1, 1}));
  EXPECT_EQ(values(read({"--preset", "none"})), values(read({})));
  EXPECT_EQ(values(read({"--preset", "compressed"})), compressed);
  EXPECT_EQ(values(read({}, {{"KEDGE_PRESET", "compressed"}})), compressed);
  // The order of flags means nothing, and a value that is the default's is still given.
  EXPECT_EQ(values(read({"--temp", "0.8", "--preset", "compressed"})), (std::vector<float>{0.8F, 1.2F, 1.1F}));
  EXPECT_EQ(values(read({"--preset", "compressed", "--repeat-penalty", "1"})), (std::vector<float>{0.5F, 1, 1.1F}));
  EXPECT_EQ(values(read({"--preset", "compressed"}, {{"KEDGE_LENGTH_PENALTY", "2"}})),
            (std::vector<float>{0.5F, 1.2F, 2}));
  const TempFile file("preset = \"compressed\"\ntemp = 0.25\n");
  EXPECT_EQ(values(read({"--config", file.path()})), (std::vector<float>{0.25F, 1.2F, 1.1F}));
  EXPECT_EQ(read({"--preset", "compressed"})->top_k, read({})->top_k);
  EXPECT_EQ(error_of({"--preset", "compresed"}),
            "--preset: unknown value 'compresed', the nearest is 'compressed' (none|compressed)");
}

TEST(ReadSettings, EveryValueOfAPresetIsOneOfRun) {
  for (const OptionSpec& row : option_table()) {
    const std::string_view value = preset_value("compressed", row.key());
    if (value.empty())
      continue;
    Settings settings;
    EXPECT_NE(row.verbs & kRun, 0U) << row.name;
    EXPECT_TRUE(assign(row, value, "preset", settings).ok()) << row.name;
  }
}

TEST(ReadSettings, MistakesNameTheNearest) {
  EXPECT_NE(error_of({"--nosuch"}).find("'--nosuch', the nearest is --"), std::string::npos);
  EXPECT_NE(error_of({"--kv-buget", "1MiB"}).find("the nearest is --kv-budget"), std::string::npos);
  EXPECT_NE(error_of({"--kv-buget=1MiB"}).find("'--kv-buget', the nearest is --kv-budget"), std::string::npos);
  EXPECT_NE(error_of({"-ctq", "f16"}).find("'-ctq', the nearest is -ct"), std::string::npos);
  EXPECT_NE(error_of({"--progress", "jason"}).find("the nearest is 'json'"), std::string::npos);
  // A flag of another verb is unknown here.
  EXPECT_NE(error_of({"--offsets", "1"}).find("unknown flag '--offsets'"), std::string::npos);
}

TEST(ReadSettings, UnknownFlagsBeforeHelp) {
  EXPECT_NE(error_of({"-n5"}).find("unknown flag '-n5', the nearest is -n"), std::string::npos);
  EXPECT_EQ(read({"word", "--", "-n"})->positional, (Words{"word", "-n"}));
}

TEST(ReadSettings, NumbersAreChecked) {
  EXPECT_NE(error_of({"--temp", "warm"}).find("--temp: 'warm' is not a number"), std::string::npos);
  EXPECT_NE(error_of({"-n", "1.5"}).find("--predict: '1.5' is not a whole number"), std::string::npos);
  EXPECT_NE(error_of({"-n", "-2"}).find("outside -1.."), std::string::npos);
  EXPECT_NE(error_of({"-c", "99999999999999999999"}).find("outside"), std::string::npos);
  EXPECT_NE(error_of({"--top-p", "nan"}).find("outside"), std::string::npos);
  EXPECT_EQ(error_of({"--length-penalty", "0"}), "--length-penalty: '0' is outside 0.01..100");
  EXPECT_EQ(read({"--length-penalty", "0.01"})->length_penalty, 0.01F);
  EXPECT_EQ(error_of({"--length-penalty", "0.00999"}), "--length-penalty: '0.00999' is outside 0.01..100");
  EXPECT_NE(error_of({"-n", ""}).find("not a whole number"), std::string::npos);
  EXPECT_NE(error_of({}, {{"KEDGE_THREADS", "many"}}).find("KEDGE_THREADS: 'many'"), std::string::npos);
  EXPECT_NE(error_of({"-m"}).find("--model"), std::string::npos);
}

TEST(ReadSettings, HelpIsNeverRefused) {
  const Result<Settings> settings = read({"--temp", "warm", "--help"});
  ASSERT_TRUE(settings.ok());
  EXPECT_TRUE(settings->help);
}

TEST(Config, UnknownKeysAndForms) {
  const auto error = [](const char* toml) {
    const auto values = parse_config(toml, "k.toml");
    return values.ok() ? std::string("no error") : values.error().message;
  };
  EXPECT_EQ(error("kv-budget = \"1MiB\"\n"), "no error");
  EXPECT_EQ(error("\nkv-buget = \"1MiB\"\n"),
            "config file k.toml, line 2: unknown key 'kv-buget', the nearest is 'kv-budget'");
  EXPECT_NE(error("temp = [1, 2]\n").find("'temp' must be"), std::string::npos);
  EXPECT_NE(error("temp = \n").find("line 1"), std::string::npos);
  EXPECT_NE(error("help = true\n").find("unknown key 'help'"), std::string::npos);
}

TEST(Config, ScalarsAsText) {
  const auto values = parse_config("temp = 0.8\ntop-k = 40\nchat = false\nkv-budget = \"25%\"\n", "k.toml");
  ASSERT_TRUE(values.ok()) << values.error().message;
  EXPECT_EQ(values->at("temp"), "0.8");
  EXPECT_EQ(values->at("top-k"), "40");
  EXPECT_EQ(values->at("chat"), "false");
  EXPECT_EQ(values->at("kv-budget"), "25%");
}

TEST(Config, MissingFileIsAnError) {
  EXPECT_NE(error_of({"--config", "/nonexistent/k.toml"}).find("/nonexistent/k.toml"), std::string::npos);
}

TEST(SessionOptionsOf, CacheTypesAreChosenSeparately) {
  const Result<Settings> settings = read({"-m", "x", "-ctk", "q8_0", "-ctv", "q4", "--kv-f16-window", "64"});
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  const Result<SessionOptions> options = session_options(*settings);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->cache_type_k, "q8_0");
  EXPECT_EQ(options->cache_type_v, "q4");
  EXPECT_EQ(options->f16_window, 64);
  EXPECT_EQ(cache_types(*options), "q8_0 K, q4 V");
}

TEST(SessionOptionsOf, TypesAndWindowsThatDoNotExistAreRefused) {
  EXPECT_NE(error_of({"-m", "x", "-ctk", "q5_0"}).find("cache-type-k"), std::string::npos);
  EXPECT_NE(error_of({"-m", "x", "-ctv", "int4"}).find("q4_0"), std::string::npos);
  EXPECT_NE(error_of({"-m", "x", "--kv-f16-window", "-1"}).find("kv-f16-window"), std::string::npos);
  Settings settings;
  settings.kv_f16_window = 24;
  const Result<SessionOptions> options = session_options(settings);
  ASSERT_FALSE(options.ok());
  EXPECT_EQ(options.error().message, "--kv-f16-window is 24; it must be a multiple of 16, or 0");
}

TEST(SessionOptionsOf, BudgetsAreRefusedBeforeAnyModelIsLoaded) {
  for (const char* budget : {"-1MiB", "0", "12", "101%", "MiB"}) {
    Settings settings;
    settings.kv_budget = budget;
    const Result<SessionOptions> options = session_options(settings);
    ASSERT_FALSE(options.ok()) << budget;
    EXPECT_EQ(options.error().code, ErrorCode::usage) << budget;
  }
}

TEST(Format, Numbers) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(23040), "23,040");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(format_percent(0.1234), "12.3%");
}

}  // namespace
}  // namespace kedge::cli
