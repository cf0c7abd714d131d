// What a request of `run` is made of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kedge/model.h"
#include "kedge/session.h"
#include "settings.h"

namespace kedge::cli {

// -f, then -p; standard input where neither is given and it is no terminal. Errors: usage (nothing to read), those of
// read_text.
Result<std::string> read_prompt(const Settings& settings);

// The prompt's tokens, with the chat template where asked, without BOS where they are appended. An empty one becomes
// the model's BOS token. Error usage.
Result<std::vector<Token>> prompt_tokens(const Model& model, const Settings& settings, const std::string& text);

// Error context_too_long, with both numbers, where the tokens exceed --ctx-size.
Status check_context(const Settings& settings, int64_t n_tokens);

// The seed to use: the one given, or a random one.
uint32_t resolve_seed(const Settings& settings);
SamplerOptions sampler_options(const Settings& settings, uint32_t seed);
std::string sampling_text(const SamplerOptions& options);  // "temp 0.80, top-k 40, ...", one line for people

// Prints text to standard output. Error failed.
Status print_text(std::string_view text);

}  // namespace kedge::cli
