// Peak memory of the process, measured per stretch of work where the kernel allows it.
#pragma once

#include <cstdint>

namespace kedge::bench {

// Sets the kernel's mark of the largest resident size back to the present one. False: not allowed here, the mark stays
// that of the whole process.
bool reset_peak_rss();

}  // namespace kedge::bench
