#include "page.h"

#include <map>

#include "cli/sha256.h"
#include "markup.h"
#include "sections.h"

namespace kedge::report {
namespace {

std::string figure_html(const FigureSet& set, const Figure& figure) {
  const bool choice = set.figures.size() > 1;
  std::string out = "<figure data-name=\"" + escape(figure.name) + "\"";
  if (choice)
    out += " data-choice=\"" + escape(figure.choice) + "\"";
  out += ">\n";
  if (choice)
    out += "<p class=\"choice\">" + escape(figure.choice) + "</p>";
  return out + "<div class=\"scroll\">" + figure.svg + "</div>\n<figcaption>" + escape(figure.caption) +
         "</figcaption></figure>\n";
}

std::string set_html(const FigureSet& set) {
  std::string out =
      "<div class=\"set\" data-label=\"" + escape(set.label) + "\" data-first=\"" + escape(set.first) + "\">";
  if (!set.title.empty())
    out += "<h3>" + escape(set.title) + "</h3>";
  for (const Figure& figure : set.figures)
    out += figure_html(set, figure);
  return out + "</div>\n";
}

std::string section_html(const Section& section) {
  std::string out = "<section id=\"" + section.id + "\"><p class=\"kicker\">" + escape(section.kicker) + "</p>\n<h2>" +
                    escape(section.heading) + "</h2>\n";
  if (!section.note.empty())
    out += "<p class=\"note\">" + escape(section.note) + "</p>\n";
  for (const FigureSet& set : section.sets)
    out += set_html(set);
  return out + section.html + "</section>\n";
}

std::string title_of(const std::vector<Run>& runs) {
  std::vector<std::string> models, names;
  for (const Run& run : runs) {
    names.push_back(run.name);
    bool known = run.config.model.empty();
    for (const std::string& model : models)
      known = known || model == run.config.model;
    if (!known)
      models.push_back(run.config.model);
  }
  return listed(names) + (models.empty() ? "" : ": " + listed(models));
}

// Each "@name@" of the template replaced once; what is put in is not searched again.
std::string filled(std::string_view text, const std::map<std::string, std::string>& values) {
  std::string out;
  while (!text.empty()) {
    const size_t begin = text.find('@');
    const size_t end = begin == std::string_view::npos ? begin : text.find('@', begin + 1);
    if (end == std::string_view::npos)
      return out + std::string(text);
    const auto found = values.find(std::string(text.substr(begin + 1, end - begin - 1)));
    out += text.substr(0, begin);
    out += found != values.end() ? found->second : std::string(text.substr(begin, end - begin + 1));
    text = text.substr(end + 1);
  }
  return out;
}

}  // namespace

Page make_page(const std::vector<Run>& runs) {
  const Comparison comparison(runs);
  const Section sections[] = {summary_section(comparison), heatmap_section(comparison),    quality_section(comparison),
                              memory_section(comparison),  rows_section(comparison),       times_section(comparison),
                              table_section(comparison),   predictions_section(comparison)};
  Page page;
  std::string main, links;
  for (const Section& section : sections) {
    main += section_html(section);
    links += "<a href=\"#" + section.id + "\">" + escape(section.kicker) + "</a> ";
    for (const FigureSet& set : section.sets) {
      for (const Figure& figure : set.figures)
        page.figures.emplace_back(figure.name, standalone(figure.svg, asset::figure_css));
    }
  }
  const std::string style = std::string(asset::figure_css) + asset::page_css;
  const std::string policy = "default-src 'none'; style-src 'sha256-" + cli::sha256_base64(style) +
                             "'; script-src 'sha256-" + cli::sha256_base64(asset::page_js) +
                             "'; img-src data:; base-uri 'none'; form-action 'none'";
  page.html = filled(asset::page_html, {{"policy", policy},
                                        {"title", escape(title_of(runs))},
                                        {"style", style},
                                        {"links", links},
                                        {"main", main},
                                        {"script", asset::page_js}});
  return page;
}

}  // namespace kedge::report
