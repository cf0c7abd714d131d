#include "train/shard.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

namespace kedge::train {
namespace {

namespace fs = std::filesystem;

class Shards : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("kedge-shards-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    shard_ = {
        .shape = {.n_rows = 3, .n_layers = 2, .n_embd = 5, .n_heads = 1, .n_kv = 4, .n_aged = 2, .features = 0b1011},
        .made_from = "here",
        .layers = {}};
    for (int layer = 0; layer < 2; ++layer) {
      LayerRows rows;
      for (int i = 0; i < 15; ++i)
        rows.x.push_back(static_cast<uint16_t>(100 * layer + i));
      for (int i = 0; i < 3; ++i)
        rows.y.push_back(static_cast<float>(layer) - 0.5F * static_cast<float>(i));
      for (int i = 0; i < 3 * 4; ++i)
        rows.kv.push_back(static_cast<uint16_t>(1000 + 100 * layer + i));
      for (int i = 0; i < 2 * 3; ++i)
        rows.features.push_back(static_cast<uint16_t>(2000 + 100 * layer + i));
      for (int i = 0; i < 2; ++i)
        rows.late.push_back(10.0F + static_cast<float>(2 * layer + i));
      shard_.layers.push_back(rows);
    }
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path() const { return (folder_ / "one.bin").string(); }
  std::string bytes() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& content) const { std::ofstream(path(), std::ios::binary) << content; }

  fs::path folder_;
  Shard shard_;
};

TEST_F(Shards, WhatIsWrittenIsRead) {
  ASSERT_TRUE(save_shard(shard_, path()).ok());
  const Result<ShardFile> file = ShardFile::open(path());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->shape(), shard_.shape);
  EXPECT_EQ(file->made_from(), "here");
  for (int layer = 0; layer < 2; ++layer) {
    EXPECT_TRUE(std::ranges::equal(file->x(layer), shard_.layers[static_cast<size_t>(layer)].x));
    EXPECT_TRUE(std::ranges::equal(file->y(layer), shard_.layers[static_cast<size_t>(layer)].y));
    EXPECT_TRUE(std::ranges::equal(file->kv(layer), shard_.layers[static_cast<size_t>(layer)].kv));
    EXPECT_TRUE(std::ranges::equal(file->features(layer), shard_.layers[static_cast<size_t>(layer)].features));
    EXPECT_TRUE(std::ranges::equal(file->late(layer), shard_.layers[static_cast<size_t>(layer)].late));
  }
}

TEST_F(Shards, EveryTruncationAndEveryFlippedByteIsRefused) {
  ASSERT_TRUE(save_shard(shard_, path()).ok());
  const std::string whole = bytes();
  for (size_t n = 0; n < whole.size(); n += 7) {
    write(whole.substr(0, n));
    EXPECT_FALSE(ShardFile::open(path()).ok()) << n << " bytes";
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x40);
    write(damaged);
    EXPECT_FALSE(ShardFile::open(path()).ok()) << "byte " << i;
  }
  write(whole);
  EXPECT_TRUE(ShardFile::open(path()).ok());
}

TEST_F(Shards, AFileThatIsNotThereIsNamed) {
  const Result<ShardFile> file = ShardFile::open(path());
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.error().message.find(path()), std::string::npos);
}

}  // namespace
}  // namespace kedge::train
