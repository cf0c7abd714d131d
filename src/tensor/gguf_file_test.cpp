#include "tensor/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <limits>
#include <random>

#include "tensor/test_gguf.h"

namespace kedge::tensor {
namespace {

using ::testing::HasSubstr;

// Bytes that end where an inaccessible page begins: a read past the end is a crash, sanitizers or not.
class GuardedBytes {
 public:
  explicit GuardedBytes(size_t capacity) {
    page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (capacity + page_ - 1) / page_ * page_ + page_;
    base_ = static_cast<std::byte*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(static_cast<void*>(base_), MAP_FAILED);
    EXPECT_EQ(mprotect(base_ + mapped_ - page_, page_, PROT_NONE), 0);
  }
  ~GuardedBytes() { munmap(base_, mapped_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  std::span<const std::byte> hold(std::span<const std::byte> bytes) {
    std::byte* at = base_ + mapped_ - page_ - bytes.size();
    if (!bytes.empty())
      std::memcpy(at, bytes.data(), bytes.size());
    return {at, bytes.size()};
  }

 private:
  size_t page_ = 0, mapped_ = 0;
  std::byte* base_ = nullptr;
};

std::vector<std::byte> sample() {
  TestGguf file;
  file.text("general.architecture", "llama");
  file.u32("general.alignment", 32);
  file.u32("count", 7);
  file.f32("real", 0.5F);
  gguf_set_val_u8(file.keys(), "u8", 200);
  gguf_set_val_i8(file.keys(), "i8", -3);
  gguf_set_val_u16(file.keys(), "u16", 60000);
  gguf_set_val_i16(file.keys(), "i16", 12);
  gguf_set_val_i32(file.keys(), "i32", -1);
  gguf_set_val_u64(file.keys(), "u64", uint64_t{1} << 40);
  gguf_set_val_i64(file.keys(), "i64", 9);
  gguf_set_val_f64(file.keys(), "f64", 2.25);
  gguf_set_val_f64(file.keys(), "nan", std::numeric_limits<double>::quiet_NaN());
  gguf_set_val_bool(file.keys(), "yes", true);
  const uint32_t numbers[] = {1, 2, 3};
  gguf_set_arr_data(file.keys(), "numbers", GGUF_TYPE_UINT32, numbers, 3);
  const char* words[] = {"one", "two", "", "four"};
  gguf_set_arr_str(file.keys(), "words", words, 4);
  std::vector<float> values(64);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i) / 8;
  file.tensor("a.weight", GGML_TYPE_F32, {8, 4}, values);
  file.tensor("b.weight", GGML_TYPE_Q4_0, {32, 2}, values);
  file.tensor("c.bias", GGML_TYPE_F16, {5}, values);
  file.tensor("d.weight", GGML_TYPE_F32, {2, 2, 2, 2}, values);
  return file.bytes();
}

// Where the header's numbers stand in a well-formed file: what a mutant changes.
struct Field {
  size_t offset;
  size_t n_bytes;
};

struct Walk {
  std::span<const std::byte> bytes;
  size_t at = 0;
  std::vector<Field> fields;

  uint64_t number(size_t n_bytes) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, n_bytes);
    fields.push_back({at, n_bytes});
    at += n_bytes;
    return value;
  }
  void text() {
    const uint64_t n = number(8);
    if (n > 0)
      fields.push_back({at, 1});
    at += n;
  }
  void value(uint64_t type) {
    constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == GGUF_TYPE_STRING) {
      text();
    } else if (type == GGUF_TYPE_ARRAY) {
      const uint64_t of = number(4);
      const uint64_t n = number(8);
      for (uint64_t i = 0; i < n; ++i)
        value(of);
    } else {
      number(kBytes[type]);
    }
  }
};

Walk walk(std::span<const std::byte> bytes) {
  Walk w{.bytes = bytes};
  w.number(4);
  w.number(4);
  const uint64_t n_tensors = w.number(8);
  const uint64_t n_kv = w.number(8);
  for (uint64_t i = 0; i < n_kv; ++i) {
    w.text();
    w.value(w.number(4));
  }
  for (uint64_t i = 0; i < n_tensors; ++i) {
    w.text();
    const uint64_t n_dims = w.number(4);
    for (uint64_t d = 0; d < n_dims; ++d)
      w.number(8);
    w.number(4);
    w.number(8);
  }
  return w;
}

// Opens the bytes; true when they opened. Either way all that must hold is asserted.
bool open_is_safe(std::span<const std::byte> bytes) {
  const auto file = GgufFile::open_bytes(bytes, "mutant");
  if (!file.ok()) {
    EXPECT_EQ(file.error().code, ErrorCode::model_unreadable);
    EXPECT_TRUE(file.error().message.starts_with("mutant: ")) << file.error().message;
    EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
    return false;
  }
  for (const char* key : {"general.architecture", "count", "real", "yes", "numbers", "words"}) {
    // Which of these succeed depends on the mutant; each must answer.
    const int answers = (*file)->get_u32(key).ok() + (*file)->get_f32(key).ok() + (*file)->get_string(key).ok() +
                        (*file)->array_length(key).ok() + (*file)->get_bool_or(key, false).ok();
    EXPECT_LE(answers, 2);
  }
  for (const TensorInfo& t : (*file)->tensors()) {
    EXPECT_GE(t.data, bytes.data());
    EXPECT_GT(t.n_bytes, 0);
    EXPECT_LE(t.data + t.n_bytes, bytes.data() + bytes.size());
    EXPECT_GT(t.ne[0] * t.ne[1] * t.ne[2] * t.ne[3], 0);
  }
  return true;
}

TEST(GgufFile, ReadsEveryType) {
  const TempFile temp(sample());
  const auto opened = GgufFile::open(temp.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const GgufFile& file = **opened;
  EXPECT_EQ(file.path(), temp.path());
  EXPECT_EQ(file.file_bytes(), static_cast<int64_t>(sample().size()));
  EXPECT_EQ(*file.get_string("general.architecture"), "llama");
  EXPECT_EQ(*file.get_u32("count"), 7U);
  EXPECT_EQ(*file.get_u32("u8"), 200U);
  EXPECT_EQ(*file.get_u32("u16"), 60000U);
  EXPECT_EQ(*file.get_u32("i16"), 12U);
  EXPECT_EQ(*file.get_u32("i64"), 9U);
  EXPECT_EQ(*file.get_f32("real"), 0.5F);
  EXPECT_EQ(*file.get_f32("f64"), 2.25F);
  EXPECT_TRUE(*file.get_bool_or("yes", false));
  EXPECT_EQ(*file.array_length("numbers"), 3);
  EXPECT_EQ(*file.array_length("words"), 4);
  EXPECT_EQ(*file.get_u32_or("absent", 5), 5U);
  EXPECT_EQ(*file.get_f32_or("absent", 1.5F), 1.5F);
  EXPECT_EQ(*file.get_string_or("absent", "x"), "x");
  EXPECT_FALSE(file.has("absent"));
  EXPECT_TRUE(file.has("yes"));
}

TEST(GgufFile, NamesWhatIsWrongWithAKey) {
  const std::vector<std::byte> bytes = sample();
  const auto opened = GgufFile::open_bytes(bytes, "m.gguf");
  ASSERT_TRUE(opened.ok());
  const GgufFile& file = **opened;
  EXPECT_EQ(file.get_u32("absent").error().message, "m.gguf: key 'absent': not found, it is needed");
  EXPECT_EQ(file.get_u32("real").error().message, "m.gguf: key 'real': found f32, allowed an integer");
  EXPECT_EQ(file.get_u32("numbers").error().message, "m.gguf: key 'numbers': found array of u32, allowed an integer");
  EXPECT_THAT(file.get_u32("i8").error().message, HasSubstr("found a negative number, allowed 0..4294967295"));
  EXPECT_THAT(file.get_u32_or("u64", 1).error().message, HasSubstr("found a number beyond 32 bits"));
  EXPECT_THAT(file.get_f32_or("count", 1).error().message, HasSubstr("allowed f32 or f64"));
  EXPECT_THAT(file.get_f32("nan").error().message, HasSubstr("allowed are finite"));
  EXPECT_THAT(file.get_bool_or("count", true).error().message, HasSubstr("allowed bool"));
  EXPECT_THAT(file.get_string_or("count", "").error().message, HasSubstr("allowed a string"));
  EXPECT_THAT(file.array_length("count").error().message, HasSubstr("allowed an array"));
}

TEST(GgufFile, RequiresShapes) {
  const std::vector<std::byte> bytes = sample();
  const auto file = GgufFile::open_bytes(bytes, "m.gguf");
  ASSERT_TRUE(file.ok());
  ASSERT_EQ((*file)->tensors().size(), 4U);
  const auto a = (*file)->require("a.weight", {8, 0});
  ASSERT_TRUE(a.ok());
  EXPECT_EQ((*a)->n_bytes, 128);
  float second = 0;
  std::memcpy(&second, (*a)->data + 4, 4);
  EXPECT_EQ(second, 0.125F);
  EXPECT_TRUE((*file)->require("c.bias", {5}).ok());
  EXPECT_TRUE((*file)->require("d.weight", {2, 2, 2, 2}).ok());
  EXPECT_EQ((*file)->require("a.weight", {8, 5}).error().message,
            "m.gguf: tensor 'a.weight': found shape [8, 4], allowed [8, 5]");
  EXPECT_FALSE((*file)->require("a.weight", {8}).ok());
  EXPECT_FALSE((*file)->require("a.weight", {8, 4, 2}).ok());
  EXPECT_EQ((*file)->require("z", {3, 0}).error().message, "m.gguf: tensor 'z': not found, needed with shape [3, any]");
  EXPECT_EQ((*file)->find("z"), nullptr);
}

TEST(GgufFile, RefusesWhatIsNotAModelFile) {
  EXPECT_THAT(GgufFile::open("/nonexistent/x.gguf").error().message,
              HasSubstr("/nonexistent/x.gguf: cannot be opened: No such file"));
  EXPECT_THAT(GgufFile::open("/tmp").error().message, HasSubstr("something that is not a file"));
  const TempFile empty({});
  EXPECT_THAT(GgufFile::open(empty.path()).error().message, HasSubstr("an empty file"));
  const std::string html = "<!DOCTYPE html><html></html>";
  EXPECT_THAT(GgufFile::open_bytes(std::as_bytes(std::span(html)), "m").error().message,
              HasSubstr("magic: found '<!DO'"));
  EXPECT_EQ(GgufFile::open("/nonexistent").error().code, ErrorCode::model_unreadable);
}

TEST(GgufFile, RefusesSplitFilesByName) {
  TestGguf split;
  gguf_set_val_u16(split.keys(), "split.count", 3);
  EXPECT_THAT(GgufFile::open_bytes(split.bytes(), "m").error().message,
              HasSubstr("key 'split.count': found 3, allowed 1"));
  TestGguf whole;
  gguf_set_val_u16(whole.keys(), "split.count", 1);
  EXPECT_TRUE(GgufFile::open_bytes(whole.bytes(), "m").ok());
}

// Changes one number of the sample and returns the error.
std::string error_after(size_t field_offset, size_t n_bytes, uint64_t value) {
  std::vector<std::byte> bytes = sample();
  std::memcpy(bytes.data() + field_offset, &value, n_bytes);
  const auto file = GgufFile::open_bytes(bytes, "m");
  return file.ok() ? "opened" : file.error().message;
}

size_t offset_of(const std::vector<std::byte>& bytes, std::string_view text) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return all.find(text);
}

TEST(GgufFile, NamesTheLyingField) {
  const std::vector<std::byte> bytes = sample();
  EXPECT_THAT(error_after(4, 4, 1), HasSubstr("version: found 1, allowed 2 and 3"));
  EXPECT_THAT(error_after(4, 4, 0x03000000), HasSubstr("big-endian"));
  EXPECT_THAT(error_after(8, 8, ~uint64_t{0}), HasSubstr("tensor count: found -1"));
  EXPECT_THAT(error_after(16, 8, uint64_t{1} << 62), HasSubstr("key count"));
  EXPECT_THAT(error_after(24, 8, 0), HasSubstr("key 0: found an empty name"));
  EXPECT_THAT(error_after(24, 8, ~uint64_t{0}), HasSubstr("name of key 0: the file ends"));
  const size_t alignment = offset_of(bytes, "general.alignment") + 17;
  EXPECT_THAT(error_after(alignment, 4, GGUF_TYPE_INT32),
              HasSubstr("key 'general.alignment': found type 5, allowed u32"));
  EXPECT_THAT(error_after(alignment + 4, 4, 0), HasSubstr("powers of two"));
  EXPECT_THAT(error_after(alignment + 4, 4, 48), HasSubstr("powers of two"));
  EXPECT_THAT(error_after(alignment + 4, 4, 0x7FC00000), HasSubstr("powers of two"));
  const size_t numbers = offset_of(bytes, "numbers") + 7;
  EXPECT_THAT(error_after(numbers + 4, 4, GGUF_TYPE_ARRAY), HasSubstr("key 'numbers': found an array of arrays"));
  EXPECT_THAT(error_after(numbers + 8, 8, (~uint64_t{0}) / 4 + 2), HasSubstr("key 'numbers'"));
  EXPECT_THAT(error_after(numbers, 4, 99), HasSubstr("key 'numbers': found type 99"));
  const size_t a = offset_of(bytes, "a.weight") + 8;
  EXPECT_THAT(error_after(a, 4, 5), HasSubstr("tensor 'a.weight': found 5 dimensions, allowed 1..4"));
  EXPECT_THAT(error_after(a, 4, 0), HasSubstr("found 0 dimensions"));
  EXPECT_THAT(error_after(a + 4, 8, 0), HasSubstr("found size 0 in dimension 0"));
  EXPECT_THAT(error_after(a + 4, 8, uint64_t{1} << 63), HasSubstr("in dimension 0"));
  EXPECT_THAT(error_after(a + 12, 8, uint64_t{1} << 62), HasSubstr("more than 2^63 elements"));
  EXPECT_THAT(error_after(a + 12, 8, uint64_t{1} << 30), HasSubstr("do not fit the file"));
  EXPECT_THAT(error_after(a + 20, 4, 4), HasSubstr("tensor 'a.weight': found type 4"));  // removed from ggml
  EXPECT_THAT(error_after(a + 20, 4, GGML_TYPE_Q4_0), HasSubstr("found rows of 8, allowed are multiples of 32"));
  EXPECT_THAT(error_after(a + 24, 8, 32), HasSubstr("tensor 'a.weight': found offset 32, allowed is 0"));
  const size_t b = offset_of(bytes, "b.weight");
  EXPECT_THAT(error_after(b, 1, 'a'), HasSubstr("tensor 'a.weight': found twice"));
  EXPECT_THAT(error_after(offset_of(bytes, "i16"), 1, 'u'), HasSubstr("key 'u16': found twice"));
}

TEST(GgufFile, EveryTruncationIsAnError) {
  const std::vector<std::byte> bytes = sample();
  GuardedBytes guarded(bytes.size());
  for (size_t n = 0; n < bytes.size(); ++n) {
    ASSERT_FALSE(open_is_safe(guarded.hold(std::span(bytes).first(n)))) << n;
  }
  EXPECT_TRUE(open_is_safe(guarded.hold(bytes)));
}

// What tends to break size arithmetic, besides neighbours of the true value.
uint64_t hostile(uint64_t truth, std::mt19937_64& random) {
  switch (random() % 12) {
    case 0:
      return 0;
    case 1:
      return ~uint64_t{0};
    case 2:
      return truth + 1;
    case 3:
      return truth - 1;
    case 4:
      return truth * 2;
    case 5:
      return uint64_t{1} << 63;
    case 6:
      return (uint64_t{1} << 63) - 1;
    case 7:
      return uint64_t{1} << (random() % 64);
    case 8:
      return (~uint64_t{0}) / (1 + random() % 64);
    case 9:
      return random() % 64;
    case 10:
      return truth ^ (uint64_t{1} << (random() % 64));
    default:
      return random();
  }
}

TEST(GgufFile, TenThousandMutantsAreSafe) {
  const std::vector<std::byte> original = sample();
  const Walk fields = walk(original);
  ASSERT_GT(fields.fields.size(), 100U);
  std::mt19937_64 random(20240601);
  GuardedBytes guarded(2 * original.size());
  int n_opened = 0;
  int n_refused = 0;
  const auto pick = [&] { return fields.fields[random() % fields.fields.size()]; };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes = original;
    const int n_changes = 1 + static_cast<int>(random() % 3);
    for (int c = 0; c < n_changes; ++c) {
      const Field f = pick();
      if (random() % 8 == 0) {  // two fields of one size change places
        const Field g = pick();
        if (f.n_bytes == g.n_bytes)
          std::swap_ranges(bytes.begin() + static_cast<long>(f.offset),
                           bytes.begin() + static_cast<long>(f.offset + f.n_bytes),
                           bytes.begin() + static_cast<long>(g.offset));
        continue;
      }
      uint64_t truth = 0;
      std::memcpy(&truth, bytes.data() + f.offset, f.n_bytes);
      const uint64_t value = hostile(truth, random);
      std::memcpy(bytes.data() + f.offset, &value, f.n_bytes);
    }
    if (random() % 16 == 0)
      bytes.resize(random() % bytes.size());
    if (random() % 16 == 0)
      bytes.resize(bytes.size() + random() % 200, std::byte{0x5A});
    (open_is_safe(guarded.hold(bytes)) ? n_opened : n_refused)++;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
  }
  // Both happen, or the mutants are too tame or too wild to mean anything.
  EXPECT_GT(n_opened, 500);
  EXPECT_GT(n_refused, 10000);
}

TEST(GgufFile, BitFlipsOfTheHeaderAreSafe) {
  const std::vector<std::byte> original = sample();
  const size_t header = walk(original).at;
  GuardedBytes guarded(original.size());
  int n_refused = 0;
  for (size_t bit = 0; bit < header * 8; ++bit) {
    std::vector<std::byte> bytes = original;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    n_refused += open_is_safe(guarded.hold(bytes)) ? 0 : 1;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "bit " << bit;
  }
  EXPECT_GT(n_refused, static_cast<int>(header));  // lengths, types, counts, offsets
}

}  // namespace
}  // namespace kedge::tensor
