// ggml and libllama write their log to stderr unless told otherwise; Kedge's stderr is the user's. Their messages are
// dropped, except that the last warning or error is kept for the error of the call that failed.
#pragma once

#include <string>

namespace kedge::tensor {

// Installs the callback for ggml. Cheap and idempotent; every entry to ggml calls it.
void silence_ggml();

// A ggml_log_callback (level, text, user); also for llama_log_set.
void keep_last_error(int level, const char* text, void* user);

// The last warning or error, one line, "" when there was none since the last call. Clears it.
std::string take_last_log_error();

}  // namespace kedge::tensor
