#include "train_lm/report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "train_lm/step_columns.h"

namespace kedge::lm {
namespace {

TrainState of_steps(int n) {
  TrainState state;
  state.n_step_values = kStepColumns + 2;
  for (int i = 1; i <= n; ++i) {
    std::vector<double> row(state.n_step_values, 0.5);
    row[kColumnStep] = i;
    row[kColumnLmLoss] = 1.0 / i;
    state.steps.insert(state.steps.end(), row.begin(), row.end());
  }
  state.judgements = {0, 0.3, 0.2, 2, 0.25, 0.15};
  state.best_step = 2;
  state.best_kld = 0.15;
  state.start_kld = 0.2;
  return state;
}

TEST(LmReport, TheTableHasALineForEachStep) {
  const std::string csv = lm_report_csv(of_steps(3), 2);
  EXPECT_EQ(std::ranges::count(csv, '\n'), 4);
  EXPECT_EQ(csv.substr(0, 12), "step,loss,lm");
  EXPECT_NE(csv.find("keep_0,keep_1,kld_in_training,kld_by_engine\n"), std::string::npos);
  EXPECT_NE(csv.find("\n2,0.5,0.5,"), std::string::npos);
  EXPECT_NE(csv.find(",0.25,0.15\n3,"), std::string::npos) << csv;
  const std::string first = csv.substr(0, csv.find('\n'));
  const std::string second = csv.substr(first.size() + 1, csv.find('\n', first.size() + 1) - first.size() - 1);
  EXPECT_EQ(std::ranges::count(first, ','), std::ranges::count(second, ','));
}

TEST(LmReport, ThePageIsOneFileWithItsFigures) {
  const ReportFacts facts{.title = "tiny <gate>", .data = "a & b", .course = "", .effort = "1 FLOP", .n_layers = 2};
  for (const int n : {0, 1, 3, 2000}) {
    const std::string page = lm_report_html(of_steps(n), facts);
    EXPECT_NE(page.find("tiny &lt;gate&gt;"), std::string::npos);
    EXPECT_NE(page.find("a &amp; b"), std::string::npos);
    EXPECT_NE(page.find("step 2, KL divergence 0.1500; it began at 0.2000"), std::string::npos);
    EXPECT_EQ(page.find("http"), page.find("http://www.w3.org/2000/svg")) << "nothing is loaded";
    size_t figures = 0;
    for (size_t at = page.find("<svg"); at != std::string::npos; at = page.find("<svg", at + 1))
      ++figures;
    EXPECT_EQ(figures, n == 0 ? 1U : 4U) << n;
    EXPECT_EQ(page.find("nan"), std::string::npos);
    EXPECT_LT(page.size(), 200'000U + 40'000U * (n > 100));
  }
  EXPECT_NE(lm_report_html({}, facts).find("No gate was judged yet"), std::string::npos);
}

}  // namespace
}  // namespace kedge::lm
