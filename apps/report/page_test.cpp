#include "page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/sha256.h"

namespace kedge::report {
namespace {

using testing::HasSubstr;

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin) + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

size_t count(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++n;
  return n;
}

std::vector<Run> one_run() {
  std::vector<Run> runs(1);
  runs[0].name = "@style@ <run>";
  runs[0].config.policies = {{"none", ""}};
  return runs;
}

TEST(Page, ThePolicyNamesWhatIsInThePage) {
  const std::string html = make_page(one_run()).html;
  const std::string policy = between(html, "Content-Security-Policy\" content=\"", "\"");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("style-src 'sha256-" + cli::sha256_base64(between(html, "<style>", "</style>")) + "'"));
  EXPECT_THAT(policy,
              HasSubstr("script-src 'sha256-" + cli::sha256_base64(between(html, "<script>", "</script>")) + "'"));
  EXPECT_EQ(count(html, "<style"), 1U);
  EXPECT_EQ(count(html, "<script"), 1U);
  EXPECT_EQ(count(html, " style=\""), 0U);
}

TEST(Page, NothingIsLoaded) {
  const std::string html = make_page(one_run()).html;
  for (const char* word : {"src=", "url(", "@import", "<link", "<iframe"})
    EXPECT_EQ(count(html, word), 0U) << word;
}

TEST(Page, NamesAreTextAndNoPlaceholders) {
  const std::string html = make_page(one_run()).html;
  EXPECT_THAT(html, HasSubstr("<h1>@style@ &lt;run&gt;</h1>"));
  EXPECT_EQ(count(html, "@policy@") + count(html, "@main@") + count(html, "@script@"), 0U);
}

}  // namespace
}  // namespace kedge::report
