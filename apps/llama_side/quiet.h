// Idle thread pools spin for up to a second after a graph, in the way of whoever is measured next.
#pragma once

namespace kedge::llama_side {

// Waits until this process burns less than a tenth of one CPU, `limit_seconds` at most. False: it still does.
bool wait_until_quiet(double limit_seconds = 3);

}  // namespace kedge::llama_side
