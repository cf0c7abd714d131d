// Whether two sessions are one: now, and whatever is done with both.
#pragma once

#include "kedge/session.h"

namespace kedge::test {

// Tokens, logits (bits), kept positions, counts.
void expect_same_now(const Session& a, const Session& b);

// The same now; then the same samples for 70 tokens, a text of 90, and 40 more, with equal bits after each.
void expect_same_future(Session& a, Session& b);

}  // namespace kedge::test
