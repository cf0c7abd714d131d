#include "verbs.h"

#include "options.h"

namespace kedge::cli {
namespace {

constexpr VerbSpec kVerbs[] = {
    {"run", kRun, "",
     "Completes the text of -f, -p or standard input as given and prints only what is generated; --chat and "
     "--interactive "
     "apply the model's chat template.",
     run_verb},
    {"perplexity", kPerplexity, "",
     "Scores windows of a text teacher-forced, and with --kl-divergence how far a policy is from the full cache.",
     perplexity_verb},
    {"inspect", kInspect, "[FILE]",
     "Tells what a model is, what a token costs, and what a budget means for a request; or what a gate "
     "or a session file holds.",
     inspect_verb},
    {"policies", kPolicies, "[NAME]", "Lists the eviction methods with their options, defaults and sources.",
     policies_verb, policies_lists},
    {"eval", kEval, "TASK[,TASK...]",
     "Measures what policies and budgets cost on a task, and what they save, in one run folder that can be resumed.",
     eval_verb, eval_lists},
    {"bench", kBench, "", "Times prompt reading and decoding like llama-bench, over KV budgets and policies too.",
     bench_verb},
    {"train-gate", kTrain, "FILE...",
     "Teaches a discard gate which rows the model goes on to need, on your own texts: fitted to labels, or trained on "
     "the language-model loss.",
     train_gate_verb},
    {"report", kReport, "RUN...", "Writes one self-contained HTML page from the folders that `kedge eval` made.",
     report_verb},
};

}  // namespace

std::span<const VerbSpec> verbs() { return kVerbs; }

}  // namespace kedge::cli
