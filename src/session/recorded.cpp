// What a session records beside its rows, and where it is noted.
#include "session/timeline.h"

namespace kedge::session {

NoteColumns note_columns(const eviction::Needs& needs) {
  NoteColumns columns;
  if (needs.attention_sum)
    columns.attention_sum = columns.n_notes++;
  if (needs.echo) {
    columns.past = columns.n_notes++;
    columns.echo = columns.n_notes++;
  }
  if (needs.reconstruction)
    columns.reconstruction = columns.n_notes++;
  if (needs.gate)
    columns.gate = columns.n_notes++;
  return columns;
}

eviction::Needs recorded_needs(const SessionOptions& options, const eviction::Policy& policy) {
  const Result<eviction::GateMode> mode = eviction::parse_gate_mode(options.gate_mode);
  return policy.needs() | eviction::Needs{.window = options.n_observed,
                                          .attention_sum = options.histories.attention_sum,
                                          .echo = options.histories.echo,
                                          .query_moments = options.histories.query_moments,
                                          .reconstruction = options.histories.reconstruction,
                                          .gate = options.histories.gate || (mode.ok() && mode->discards())};
}

}  // namespace kedge::session
