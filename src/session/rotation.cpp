#include "session/rotation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kedge::session {
namespace {

// The pair whose wave turns `n_turns` times within the original context (YaRN, equation 17).
double pair_with_turns(const tensor::RopeParams& rope, double n_turns) {
  return rope.n_dims * std::log(rope.n_ctx_orig / (n_turns * 2 * std::numbers::pi)) / (2 * std::log(rope.freq_base));
}

}  // namespace

eviction::Rotation rotation_of(const tensor::RopeParams& rope) {
  eviction::Rotation rotation{.frequency = {}, .magnitude = rope.attn_factor, .is_split = rope.neox};
  const bool is_yarn = rope.ext_factor != 0.0F;
  const double low = is_yarn ? std::max(0.0, std::floor(pair_with_turns(rope, rope.beta_fast))) : 0.0;
  const double high = is_yarn ? std::min<double>(rope.n_dims - 1, std::ceil(pair_with_turns(rope, rope.beta_slow))) : 0;
  if (is_yarn)
    rotation.magnitude *= 1.0F + 0.1F * std::log(1.0F / rope.freq_scale);
  for (int j = 0; j < rope.n_dims / 2; ++j) {
    const double factor = rope.freq_factors == nullptr ? 1.0 : double{tensor::f32_data(rope.freq_factors)[j]};
    const double as_trained = std::pow(double{rope.freq_base}, -2.0 * j / rope.n_dims) / factor;
    const double scaled = as_trained * rope.freq_scale;
    // Fast pairs keep the trained frequency, slow ones are scaled, with a ramp between.
    const double ramp = 1.0 - std::clamp((j - low) / std::max(0.001, high - low), 0.0, 1.0);
    const double kept = is_yarn ? ramp * rope.ext_factor : 0.0;
    rotation.frequency.push_back(static_cast<float>(scaled * (1.0 - kept) + as_trained * kept));
  }
  return rotation;
}

}  // namespace kedge::session
