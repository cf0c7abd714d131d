#include "markup.h"

#include <gtest/gtest.h>

namespace kedge::report {
namespace {

TEST(Escape, NothingIsMarkup) {
  EXPECT_EQ(escape("<script>alert('x')</script> & \"y\""),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;y&quot;");
  EXPECT_EQ(escape("a\tb\nc"), "a\tb\nc");
}

TEST(Escape, BytesThatAreNoText) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(escape("a\x01"
                   "b\x7F"),
            "a" + bad + "b" + bad);
  EXPECT_EQ(escape("\xC3\xA4\xF0\x9F\x98\x80"), "\xC3\xA4\xF0\x9F\x98\x80");
  EXPECT_EQ(escape("\xC3"), bad);                      // cut off
  EXPECT_EQ(escape("\xC0\xBC"), bad + bad);            // an overlong <
  EXPECT_EQ(escape("\xED\xA0\x80"), bad + bad + bad);  // a surrogate
  EXPECT_EQ(escape("\xEF\xBF\xBF"), bad + bad + bad);  // U+FFFF
  EXPECT_EQ(escape(std::string_view("\0x", 2)), bad + "x");
}

TEST(Shortened, CountsCodePoints) {
  EXPECT_EQ(shortened("\xC3\xA4\xC3\xB6\xC3\xBC", 3), "\xC3\xA4\xC3\xB6\xC3\xBC");
  EXPECT_EQ(shortened("\xC3\xA4\xC3\xB6\xC3\xBC", 2), "\xC3\xA4\xC3\xB6\xE2\x80\xA6");
  EXPECT_EQ(shortened("", 2), "");
}

TEST(Slug, IsAFileName) {
  EXPECT_EQ(slug("needle:keys=4/25%"), "needle-keys-4-25pct");
  EXPECT_EQ(slug("../x"), "x..-x");
  EXPECT_EQ(slug(""), "x");
}

TEST(Format, Numbers) {
  EXPECT_EQ(percent(0.934), "93\u00a0%");
  EXPECT_EQ(percent(-0.0667, 1), "-6.7\u00a0%");
  EXPECT_EQ(bytes(512), "512\u00a0B");
  EXPECT_EQ(bytes(6.1 * 1024 * 1024), "6.10\u00a0MiB");
  EXPECT_EQ(bytes(24.4 * 1024 * 1024), "24.4\u00a0MiB");
  EXPECT_EQ(bytes(244.4 * 1024), "244\u00a0KiB");
  EXPECT_EQ(seconds(0.0041), "4.1\u00a0ms");
  EXPECT_EQ(seconds(12.34), "12.3\u00a0s");
  EXPECT_EQ(coordinate(-0.01), "0");
  EXPECT_EQ(coordinate(12.345), "12.3");
  EXPECT_EQ(plain(0.25), "0.25");
  EXPECT_EQ(significant(0.01325), "0.0132");
  EXPECT_EQ(seconds(0), "0\u00a0s");
}

TEST(Listed, Words) {
  EXPECT_EQ(listed({}), "");
  EXPECT_EQ(listed({"a"}), "a");
  EXPECT_EQ(listed({"a", "b"}), "a and b");
  EXPECT_EQ(listed({"a", "b", "c"}), "a, b and c");
  EXPECT_EQ(listed({"a", "b", "c", "d"}, 3), "a, b and 2 more");
}

}  // namespace
}  // namespace kedge::report
