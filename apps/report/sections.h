// The parts of the page, one file each. A heading is a sentence computed from the data that says what to look for.
#pragma once

#include <string>
#include <vector>

#include "comparison.h"

namespace kedge::report {

struct Figure {
  std::string name;    // of the file that --figures writes, without .svg
  std::string choice;  // in the selector of its set: "25%"
  std::string svg;
  std::string caption;  // plain text
};

// Figures of which one is shown at a time where scripts run, else all.
struct FigureSet {
  std::string title;  // plain text
  std::string label;  // of the selector: "Budget"
  std::string first;  // the choice that is shown first; empty: the first one
  std::vector<Figure> figures;
};

struct Section {
  std::string id;
  std::string kicker;   // what it is: "Needle heat map"
  std::string heading;  // what to look for
  std::string note;     // how to read it; or why there is no figure. Plain text
  std::vector<FigureSet> sets;
  std::string html;  // tables and lists, after the figures
};

Section summary_section(const Comparison& comparison);      // summary.cpp
Section heatmap_section(const Comparison& comparison);      // heatmap.cpp
Section quality_section(const Comparison& comparison);      // quality.cpp
Section memory_section(const Comparison& comparison);       // memory.cpp
Section rows_section(const Comparison& comparison);         // rows.cpp
Section times_section(const Comparison& comparison);        // times.cpp
Section table_section(const Comparison& comparison);        // table.cpp
Section predictions_section(const Comparison& comparison);  // predictions.cpp

// "At 25% andpro keeps 98 % of the full cache's score, random 4 %." Empty where there is nothing to compare.
std::string finding(const Comparison& comparison, const Setting& setting);
// The setting over all lengths where policies are furthest apart; the one to talk about. No budget: none.
Setting telling_setting(const Comparison& comparison, const std::string& task);

// A colour bar of palette.h with labels below it; returns the y below.
double colour_bar(Svg& svg, Point at, const std::vector<std::string>& labels, const std::string& title);

// The traces of a (task, budget) at the longest length that has what `wanted` asks for; by series.
using TraceTest = bool (*)(const Trace& trace);
struct TraceOf {
  const Series* series = nullptr;
  const Trace* trace = nullptr;
};
std::vector<TraceOf> longest_traces(const Comparison& comparison, const Setting& setting, TraceTest wanted);
bool any_journal(const Comparison& comparison);

}  // namespace kedge::report
