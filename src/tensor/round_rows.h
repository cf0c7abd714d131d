// Rounds activations to what ggml's integer dot product of a quantised weight would see of them.
//
// ggml multiplies a quantised weight by first quantising each activation row to the weight's vec_dot_type (q8_0, q8_1,
// q8_K). A prompt's products read dequantised weights in f32 instead, several times faster; rounding the activations
// the same way first keeps a prompt's rows those that decoding, and llama.cpp, would have computed up to the order of
// summation. Measured on SmolLM2-135M Q4_1, see docs/ARCHITECTURE.md: without it the logits are twice as far from
// llama.cpp's.
#pragma once

#include <cstdint>

struct ggml_tensor;

namespace kedge::tensor {

// Whether rows for this weight type are rounded, and the ggml type whose rounding they take (-1: not rounded).
int activation_type(int weight_type);

// Custom node: dst f32 [n, cols] <- src[0] f32 [n, cols], each block of 32 (q8_0, q8_1) or 256 (q8_K) as int8 times its
// scale. user: pointer to an int that holds the activation type.
void round_rows_node(ggml_tensor* dst, int ith, int nth, void* user);

// One row, for tests: out = what the activation type keeps of x.
void round_row(int type, const float* x, float* out, int64_t n);

}  // namespace kedge::tensor
