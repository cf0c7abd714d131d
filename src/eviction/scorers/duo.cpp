// DuoAttention (ICLR 2025, arXiv 2410.10819): retrieval heads look anywhere, streaming heads at sinks and recent rows.
// Roles are data, a file of lines  LAYER HEAD retrieval|streaming  (kv heads from 0; # begins a comment; heads that are
// not named are retrieval heads, which lose nothing that they do not have to).
//   retrieval: score[i] = mean over the last `window` queries and the group's heads of a[t,g,i]
//   streaming: score[i] = (position - n_tokens) / n_tokens, below any of those: only what is protected is sure of a
//   place
// With the allocator `pooled` the rows that streaming heads give up go to the layer's retrieval heads. The paper keeps
// all rows of retrieval heads; a budget that has no room for them takes those with most attention.
#include <fstream>
#include <map>
#include <sstream>

#include "eviction/options.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

using Roles = std::map<std::pair<int, int>, bool>;  // (layer, head): is it a streaming head?

// `/` parts a policy's text, so that it is spelled %2F in a path.
std::string path_of(std::string text) {
  for (size_t at = text.find("%2F"); at != std::string::npos; at = text.find("%2F"))
    text.replace(at, 3, "/");
  return text;
}

Result<Roles> read_roles(const std::string& text) {
  Roles roles;
  if (text == "-")
    return roles;
  const std::string path = path_of(text);
  const auto bad = [&path](const std::string& what) { return Error{ErrorCode::usage, "duo:roles=" + path + what}; };
  std::ifstream file(path);
  std::string line;
  if (!file)
    return bad(": no such file can be read ('/' is spelled %2F)");
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream fields(line.substr(0, line.find('#')));
    std::string layer, head, role, more;
    if (!(fields >> layer))
      continue;
    fields >> head >> role >> more;
    const auto is_count = [](const std::string& s) {
      return !s.empty() && s.size() < 5 && s.find_first_not_of("0123456789") == std::string::npos;
    };
    if (!is_count(layer) || !is_count(head) || (role != "retrieval" && role != "streaming") || !more.empty())
      return bad(", line " + std::to_string(number) + ": found '" + line.substr(0, 60) +
                 "', allowed LAYER HEAD retrieval|streaming");
    if (!roles.emplace(std::pair(std::stoi(layer), std::stoi(head)), role == "streaming").second)
      return bad(", line " + std::to_string(number) + ": layer " + layer + " head " + head + " is named twice");
  }
  return roles;
}

class Duo final : public WindowScorer {
 public:
  Duo(int window, Roles roles) : WindowScorer(window), roles_(std::move(roles)) {}

  void add_queries(const HeadInput& in, int begin, int end, std::span<float> sum) const override {
    if (is_streaming(in))
      return;
    for_weight_batches(in, begin, end, [&](int, int, std::span<float> a) {
      for (size_t at = 0; at < a.size(); at += sum.size()) {
        for (size_t i = 0; i < sum.size(); ++i)
          sum[i] += a[at + i];
      }
    });
  }

  void finish(const HeadInput& in, std::span<float> sum) const override {
    for (size_t i = 0; i < sum.size(); ++i) {
      const int32_t age = in.n_tokens - in.rows.position(static_cast<int32_t>(i));
      sum[i] = is_streaming(in) ? -static_cast<float>(age) / static_cast<float>(in.n_tokens)
                                : sum[i] / static_cast<float>(in.n_window * in.group);
    }
  }

 private:
  bool is_streaming(const HeadInput& in) const {
    const auto found = roles_.find({in.layer, in.head});
    return found != roles_.end() && found->second;
  }
  Roles roles_;
};

Status validate(const OptionValues& options) {
  const Result<Roles> roles = read_roles(options.choices.at("roles"));
  return roles ? Status() : Status(roles.error());
}
std::unique_ptr<Scorer> make(const OptionValues& options) {
  Result<Roles> roles = read_roles(options.choices.at("roles"));
  return std::make_unique<Duo>(static_cast<int>(options.numbers.at("window")), roles ? *std::move(roles) : Roles());
}

}  // namespace

Method scorer_duo() {
  return {.info = {.name = "duo",
                   .summary = "head roles from a file: retrieval heads by attention, streaming heads sinks and recent",
                   .source = "DuoAttention, ICLR 2025, arXiv 2410.10819",
                   .options = {text_option("roles", "-", "file of lines LAYER HEAD retrieval|streaming; / is %2F"),
                               integer_option("window", "32", {1, 1024}, "last queries of retrieval heads")}},
          .default_allocator = "pooled",
          .default_schedule = kEveryTurn,
          .default_sinks = "4",
          .default_recent = "25%",
          .aliases = {"duo_attention", "duo-attention", "duoattention"},
          .cost = "window * n * head_dim",
          .example = {"window=1", {0.3087F, 0.1136F, 0.1136F, 0.0418F, 0.3087F, 0.1136F}},
          .validate = validate,
          .make_scorer = make};
}

}  // namespace kedge::eviction
