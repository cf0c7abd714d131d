// What a gate's ageing stage sees of rows at an eviction (gate/ageing.h names the features), and what it says.
#pragma once

#include <vector>

#include "eviction/policy.h"
#include "gate/ageing.h"

namespace kedge::eviction {

// Of the features' logarithms: what is less counts as this. The pool of `anchor` is AnDPro's, of neighbouring rows.
inline constexpr float kLeastFeatureWeight = 1e-8F;
inline constexpr float kLeastFeatureNorm = 1e-6F;
inline constexpr int kAnchorFeaturePool = 11;

// What a session must record for these features.
Needs ageing_needs(const gate::AgeingInfo& info);

// f32 [n_rows][n_features], in the order of `info`; finite. Needs what ageing_needs() asks for. Weights below 1e-8 and
// norms below 1e-6 count as these; a row that no query of the window has seen counts as one that none has looked at.
std::vector<float> ageing_features(const HeadInput& in, const gate::AgeingInfo& info);

// Logit of each row's keep probability, f32 [n_rows]: of the ageing stage where the gate has one, else what was said
// when the row was written.
std::vector<float> learned_logits(const HeadInput& in);

// The features that learned_logits() was made of, by name; of a gate with an ageing stage.
std::vector<ScorePart> ageing_parts(const HeadInput& in);

}  // namespace kedge::eviction
