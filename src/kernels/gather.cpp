#include "kernels/gather.h"

#include <immintrin.h>

#include <cstring>

#include "base/check.h"
#include "kernels/attention.h"

namespace kedge {
namespace {

template <typename Element>
void move_plain(const LineMove& move, int n_lines) {
  for (int line = 0; line < n_lines; ++line) {
    const size_t at = static_cast<size_t>(line) * kBlockRows * sizeof(Element);
    for (int slot = 0; slot < kBlockRows; ++slot) {
      if ((move.written >> slot & 1U) == 0)
        continue;
      const int from = move.from[slot];
      const std::byte* source = from < kBlockRows ? move.a : move.b;
      std::memcpy(move.dst + at + slot * sizeof(Element), source + at + from % kBlockRows * sizeof(Element),
                  sizeof(Element));
    }
  }
}

// pshufb looks up within 16 bytes: each half of each source is spread over the register and looked up on its own; a
// control byte with its top bit set gives zero, so that the four are joined by `or`.
__attribute__((target("avx2"))) void move_halves_avx2(const LineMove& move, int n_lines) {
  alignas(32) uint8_t control[4][32];  // halves of a, halves of b
  alignas(32) uint8_t mask[32];
  std::memset(control, 0x80, sizeof control);
  std::memset(mask, 0, sizeof mask);
  for (int slot = 0; slot < kBlockRows; ++slot) {
    if ((move.written >> slot & 1U) == 0)
      continue;
    const int from = move.from[slot];
    for (int byte = 0; byte < 2; ++byte) {
      control[from / 8][2 * slot + byte] = static_cast<uint8_t>(from % 8 * 2 + byte);
      mask[2 * slot + byte] = 0xFF;
    }
  }
  __m256i look[4];
  for (int i = 0; i < 4; ++i)
    look[i] = _mm256_load_si256(reinterpret_cast<const __m256i*>(control[i]));
  const __m256i written = _mm256_load_si256(reinterpret_cast<const __m256i*>(mask));
  for (int line = 0; line < n_lines; ++line) {
    const ptrdiff_t at = ptrdiff_t{line} * 32;
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(move.a + at));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(move.b + at));
    auto* to = reinterpret_cast<__m256i*>(move.dst + at);
    const __m256i of_a = _mm256_or_si256(_mm256_shuffle_epi8(_mm256_permute2x128_si256(a, a, 0x00), look[0]),
                                         _mm256_shuffle_epi8(_mm256_permute2x128_si256(a, a, 0x11), look[1]));
    const __m256i of_b = _mm256_or_si256(_mm256_shuffle_epi8(_mm256_permute2x128_si256(b, b, 0x00), look[2]),
                                         _mm256_shuffle_epi8(_mm256_permute2x128_si256(b, b, 0x11), look[3]));
    _mm256_storeu_si256(to, _mm256_blendv_epi8(_mm256_loadu_si256(to), _mm256_or_si256(of_a, of_b), written));
  }
}

__attribute__((target("avx512f,avx512bw,avx512vl"))) void move_halves_avx512(const LineMove& move, int n_lines) {
  const __m256i from =
      _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(move.from)));  // bit 4: of b
  const auto written = static_cast<__mmask16>(move.written);
  for (int line = 0; line < n_lines; ++line) {
    const ptrdiff_t at = ptrdiff_t{line} * 32;
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(move.a + at));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(move.b + at));
    _mm256_mask_storeu_epi16(move.dst + at, written, _mm256_permutex2var_epi16(a, from, b));
  }
}

__attribute__((target("avx512f"))) void move_words_avx512(const LineMove& move, int n_lines) {
  const __m512i from = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(move.from)));
  const auto written = static_cast<__mmask16>(move.written);
  for (int line = 0; line < n_lines; ++line) {
    const ptrdiff_t at = ptrdiff_t{line} * 64;
    const __m512i a = _mm512_loadu_si512(move.a + at);
    const __m512i b = _mm512_loadu_si512(move.b + at);
    _mm512_mask_storeu_epi32(move.dst + at, written, _mm512_permutex2var_epi32(a, from, b));
  }
}

const LineMovers kPlain = {.name = "plain", .halves = move_plain<uint16_t>, .words = move_plain<uint32_t>};
const LineMovers kAvx2 = {.name = "avx2", .halves = move_halves_avx2, .words = move_plain<uint32_t>};
const LineMovers kAvx512 = {.name = "avx512", .halves = move_halves_avx512, .words = move_words_avx512};

const LineMovers* find(const char* name) {
  const bool has_avx512 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  struct Target {
    const LineMovers* movers;
    bool supported;
  };
  const Target targets[] = {{.movers = &kAvx512, .supported = has_avx512},  // best first
                            {.movers = &kAvx2, .supported = __builtin_cpu_supports("avx2") != 0},
                            {.movers = &kPlain, .supported = true}};
  for (const Target& target : targets) {
    if (target.supported && (name == nullptr || std::strcmp(name, target.movers->name) == 0))
      return target.movers;
  }
  return nullptr;
}

// K of the slots that `move` writes.
void move_keys(LineMove move, int head_dim, RowTypes type) {
  static const LineMovers& movers = best_line_movers();
  if (type.k == RowType::f16)
    return movers.halves(move, head_dim);
  movers.words(move, static_cast<int>(code_bytes(head_dim, type.k)) / (kBlockRows * 4));
  if (!is_quantised(type.k))
    return;
  const size_t scales = block_layout(head_dim, type).k_scales;
  move.dst += scales;
  move.a += scales;
  move.b += scales;
  movers.halves(move, n_groups(head_dim));
}

}  // namespace

const LineMovers& best_line_movers() { return *find(nullptr); }

const LineMovers* line_movers(const char* name) { return name == nullptr ? nullptr : find(name); }

void gather_keys(std::byte* dst, int slot_begin, std::span<const RowSource> sources, int head_dim, RowTypes type) {
  check(slot_begin >= 0 && sources.size() <= static_cast<size_t>(kBlockRows - slot_begin), "gather_keys: slots");
  for (size_t begin = 0; begin < sources.size();) {
    LineMove move{.dst = dst, .a = sources[begin].block, .b = sources[begin].block, .from = {}, .written = 0};
    size_t i = begin;
    for (; i < sources.size(); ++i) {  // as far as two blocks go
      const RowSource& source = sources[i];
      if (source.block != move.a && move.b == move.a)
        move.b = source.block;
      if (source.block != move.a && source.block != move.b)
        break;
      const size_t slot = static_cast<size_t>(slot_begin) + i;
      move.from[slot] = static_cast<uint8_t>(source.slot + (source.block == move.a ? 0 : kBlockRows));
      move.written |= 1U << slot;
    }
    move_keys(move, head_dim, type);
    begin = i;
  }
}

void gather_values(std::byte* dst, int slot_begin, std::span<const RowSource> sources, int head_dim, RowTypes type) {
  check(slot_begin >= 0 && sources.size() <= static_cast<size_t>(kBlockRows - slot_begin), "gather_values: slots");
  for (size_t i = 0; i < sources.size(); ++i)
    copy_v_row(dst, slot_begin + static_cast<int>(i), sources[i].block, sources[i].slot, head_dim, type);
}

}  // namespace kedge
