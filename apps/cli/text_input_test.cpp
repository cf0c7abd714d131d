#include "text_input.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>
#include <fstream>
#include <vector>

namespace kedge::cli {
namespace {

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  std::string in = text;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string long_text() {
  std::string text;
  for (int i = 0; i < 40000; ++i)
    text += "line " + std::to_string(i * 7919 % 1000) + "\n";
  return text;
}

TEST(Gunzip, RoundTrip) {
  for (const std::string& text : {std::string(), std::string("a"), long_text()}) {
    const Result<std::string> back = gunzip(gzip(text), "t");
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(*back, text);
  }
}

TEST(Gunzip, MembersInARow) {
  const Result<std::string> back = gunzip(gzip("one ") + gzip("two"), "t");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, "one two");
}

TEST(Gunzip, EveryTruncationIsAnError) {
  const std::string whole = gzip("some text that is long enough to have a body");
  for (size_t n = 2; n < whole.size(); ++n) {
    const Result<std::string> back = gunzip(whole.substr(0, n), "t");
    ASSERT_FALSE(back.ok()) << n;
    EXPECT_EQ(back.error().code, ErrorCode::failed);
  }
}

TEST(Gunzip, DamageIsAnError) {
  std::string bytes = gzip("some text that is long enough to have a body");
  bytes[bytes.size() - 6] ^= 1;  // the checksum
  EXPECT_FALSE(gunzip(bytes, "t").ok());
  EXPECT_FALSE(gunzip(gzip("a") + "trailing garbage", "t").ok());
}

TEST(ReadText, PlainGzipAndMissing) {
  const std::string path = testing::TempDir() + "kedge_text_input_test";
  std::ofstream(path, std::ios::binary) << "plain \x80 text";
  EXPECT_EQ(*read_text(path), "plain \x80 text");
  std::ofstream(path, std::ios::binary) << gzip(long_text());
  EXPECT_EQ(*read_text(path), long_text());
  std::ofstream(path, std::ios::binary | std::ios::trunc).close();
  EXPECT_EQ(*read_text(path), "");
  std::remove(path.c_str());
  const Result<std::string> missing = read_text(path);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find(path), std::string::npos);
  EXPECT_FALSE(read_text("/").ok());
}

}  // namespace
}  // namespace kedge::cli
