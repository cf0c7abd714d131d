// Scorers over another scorer's scores: `base=NAME` names a scorer of the registry, which runs with its defaults.
#pragma once

#include <memory>
#include <string>

#include "eviction/policy.h"

namespace kedge::eviction {

class Wrapper : public Scorer {
 public:
  explicit Wrapper(std::unique_ptr<Scorer> base) : base_(std::move(base)) {}
  Needs needs() const override { return base_->needs(); }
  bool needs_whole_window() const override { return base_->needs_whole_window(); }
  bool splits_by_query() const override { return base_->splits_by_query(); }
  void add_queries(const HeadInput& in, int begin, int end, std::span<float> sum) const override {
    base_->add_queries(in, begin, end, sum);
  }
  void finish(const HeadInput& in, std::span<float> sum) const override {
    base_->finish(in, sum);
    rescore(in, sum);
  }
  void score(const HeadInput& in, std::span<float> score) const override {
    base_->score(in, score);
    rescore(in, score);
  }

 protected:
  // From the base's scores to the wrapper's, in place: f32 [n_rows].
  virtual void rescore(const HeadInput& in, std::span<float> score) const = 0;

 private:
  std::unique_ptr<Scorer> base_;
};

OptionInfo base_option(std::string fallback);
// Error usage: no such scorer, or one that evicts nothing.
Status check_base(const OptionValues& options);
// With its defaults. For values that passed check_base().
std::unique_ptr<Scorer> make_base(const OptionValues& options);

}  // namespace kedge::eviction
