#include "protect.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace kedge::cli {
namespace {

TEST(ParseSpans, RangesWithBothEndsIncluded) {
  const auto spans = parse_spans("0-63,500-519,7");
  ASSERT_TRUE(spans.ok());
  ASSERT_EQ(spans->size(), 3U);
  EXPECT_EQ(spans->at(0).begin, 0);
  EXPECT_EQ(spans->at(0).end, 64);
  EXPECT_EQ(spans->at(1).begin, 500);
  EXPECT_EQ(spans->at(1).end, 520);
  EXPECT_EQ(spans->at(2).begin, 7);
  EXPECT_EQ(spans->at(2).end, 8);
  EXPECT_TRUE(parse_spans("")->empty());
}

TEST(ParseSpans, EverythingElseIsRefusedByName) {
  for (const char* bad : {"x", "5-3", "-3", "3-", "1-2-3", "0-9,,4", "1.5", "99999999999", "0-99999999999", "3 4"}) {
    const auto spans = parse_spans(bad);
    ASSERT_FALSE(spans.ok()) << bad;
    EXPECT_EQ(spans.error().code, ErrorCode::usage);
    EXPECT_TRUE(spans.error().message.starts_with("--kv-pin: '")) << spans.error().message;
  }
}

TEST(ProtectionOf, NothingAskedIsNothing) {
  const auto protection = protection_of(Settings());
  ASSERT_TRUE(protection.ok());
  EXPECT_TRUE(protection->empty());
}

TEST(ProtectionOf, PresetsFilesAndMistakes) {
  Settings settings;
  for (const char* name : {"code", "dialogue", "tables"}) {
    settings.kv_domain = name;
    const auto protection = protection_of(settings);
    ASSERT_TRUE(protection.ok()) << protection.error().message;
    EXPECT_NE(protection->domain.find(std::string("name = \"") + name), std::string::npos);
  }
  settings.kv_domain = "dialoge";
  EXPECT_EQ(protection_of(settings).error().message,
            "--kv-domain: 'dialoge' is neither a file nor one of code, dialogue, tables; the nearest is 'dialogue'");
  const std::string path = testing::TempDir() + "own.toml";
  std::ofstream(path) << "name = \"own\"\nsummary = \"s\"\n[[class]]\nname = \"w\"\nshare = 2\nwords = [\"a\"]\n";
  settings.kv_domain = path;
  const auto bad = protection_of(settings);
  ASSERT_FALSE(bad.ok());
  EXPECT_TRUE(bad.error().message.starts_with("--kv-domain " + path + ", line 3: 'share'")) << bad.error().message;
  std::remove(path.c_str());

  settings.kv_domain.clear();
  settings.kv_protect = testing::TempDir() + "nowhere.txt";
  EXPECT_FALSE(protection_of(settings).ok());
  settings.kv_protect.clear();
  settings.kv_pin_system = true;
  EXPECT_EQ(protection_of(settings).error().code, ErrorCode::usage);
  settings.chat = true;
  EXPECT_TRUE(protection_of(settings).ok());
}

}  // namespace
}  // namespace kedge::cli
