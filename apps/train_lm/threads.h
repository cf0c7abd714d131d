// The threads that libtorch and its matrix products use.
#pragma once

namespace kedge::lm {

// n threads (0: one per CPU this process may use), on the first n of those CPUs. Returns n.
int use_threads(int n);

}  // namespace kedge::lm
