// What was measured, and under which conditions, one column a run.
#include <algorithm>
#include <functional>

#include "markup.h"
#include "sections.h"

namespace kedge::report {
namespace {

std::string joined(const std::vector<double>& values) {
  std::vector<std::string> words;
  for (const double value : values)
    words.push_back(plain(value));
  return listed(words, 12);
}

std::string file_name(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string model_text(const Run& run) {
  const Config& c = run.config;
  std::string out = c.model.empty() ? file_name(c.model_path) : c.model;
  for (const std::string& part : {c.architecture, c.weight_type})
    out += part.empty() ? "" : ", " + part;
  if (c.n_layers && c.n_kv_heads) {
    out += ", " + plain(*c.n_layers) + " layers of " + plain(*c.n_kv_heads) + " kv heads";
    out += c.head_dim ? " of " + plain(*c.head_dim) : "";
  }
  return c.model_sha256.empty() ? out : out + ", sha256 " + c.model_sha256.substr(0, 12);
}

std::string policies_text(const Run& run) {
  std::vector<std::string> words;
  for (const PolicyEntry& policy : run.config.policies)
    words.push_back(policy.text.empty() || policy.text == policy.name ? policy.name
                                                                      : policy.name + " = " + policy.text);
  std::string out;
  for (const std::string& word : words)
    out += (out.empty() ? "" : "\n") + word;
  return out;
}

std::string floor_text(const Run& run) {
  if (!run.noise_floor)
    return "";
  const NoiseFloor& floor = *run.noise_floor;
  std::string out = "KLD " + significant(floor.kld_mean);
  if (floor.same_top)
    out += ", same top " + percent(*floor.same_top, 1);
  if (floor.n_windows)
    out += ", " + plain(*floor.n_windows) + " windows";
  return floor.what.empty() ? out : out + " (" + floor.what + ")";
}

std::string switches_text(const Run& run) {
  const Config& c = run.config;
  std::string out = c.question_aware ? "the policy sees the question" : "the policy does not see the question";
  out += c.decode_evicts ? "\nevicts after the prompt and while decoding" : "\nevicts after the prompt only";
  if (run.shared_prefix)
    out += *run.shared_prefix ? "\nthe prompt is read once for all policies" : "\nevery cell reads its prompt anew";
  return c.chat ? out + "\nchat template applied" : out;
}

std::string cells_text(const Run& run) {
  const auto failed = std::count_if(run.predictions.begin(), run.predictions.end(),
                                    [](const Prediction& row) { return !row.error.empty(); });
  std::string out = std::to_string(run.predictions.size()) + " rows";
  return failed > 0 ? out + ", " + std::to_string(failed) + " of them without a score" : out;
}

struct Fact {
  const char* name;
  std::function<std::string(const Run& run)> text;
};

const std::vector<Fact>& facts() {
  static const std::vector<Fact> all = {
      {"model", model_text},
      {"text",
       [](const Run& run) {
         const Config& c = run.config;
         return c.file_sha256.empty() ? file_name(c.file)
                                      : file_name(c.file) + ", sha256 " + c.file_sha256.substr(0, 12);
       }},
      {"tasks", [](const Run& run) { return listed(run.config.tasks, 12); }},
      {"policies", policies_text},
      {"budgets", [](const Run& run) { return listed(run.config.budgets, 12); }},
      {"lengths", [](const Run& run) { return joined(run.config.lengths); }},
      {"depths", [](const Run& run) { return joined(run.config.depths); }},
      {"samples", [](const Run& run) { return run.config.samples ? plain(*run.config.samples) : std::string(); }},
      {"seed", [](const Run& run) { return run.config.seed ? plain(*run.config.seed) : std::string(); }},
      {"switches", switches_text},
      {"noise floor", floor_text},
      {"reference", [](const Run& run) { return run.config.reference; }},
      {"cells", cells_text},
      {"machine", [](const Run& run) { return run.machine; }},
      {"seconds", [](const Run& run) { return run.seconds_total ? seconds(*run.seconds_total) : std::string(); }},
  };
  return all;
}

}  // namespace

Section summary_section(const Comparison& comparison) {
  Section section{.id = "summary", .kicker = "Summary"};
  for (const std::string& task : comparison.tasks()) {
    const std::string found = finding(comparison, telling_setting(comparison, task));
    if (found.empty())
      continue;
    if (section.heading.empty())
      section.heading = found;
    else
      section.note += (section.note.empty() ? "" : "\n") + task + ": " + found;
  }
  if (section.heading.empty())
    section.heading = "These runs have no policy that evicts.";
  std::string html = "<div class=\"scroll\"><table class=\"facts\">";
  if (comparison.runs().size() > 1) {
    html += "<thead><tr><td></td>";
    for (const Run& run : comparison.runs())
      html += "<th scope=\"col\">" + escape(run.name) + "</th>";
    html += "</tr></thead>";
  }
  html += "<tbody>";
  for (const Fact& fact : facts()) {
    std::string cells;
    bool any = false;
    for (const Run& run : comparison.runs()) {
      const std::string text = fact.text(run);
      any = any || !text.empty();
      cells += "<td>" + (text.empty() ? "\u2013" : escape(text)) + "</td>";
    }
    if (any)
      html += std::string("<tr><th scope=\"row\">") + fact.name + "</th>" + cells + "</tr>\n";
  }
  section.html = html + "</tbody></table></div>";
  return section;
}

}  // namespace kedge::report
