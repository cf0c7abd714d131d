// SIGINT and SIGTERM: the first one asks the program to stop where it can, the second SIGINT exits at once.
#pragma once

namespace kedge::cli {

void install_signal_handlers();
bool stop_requested();
// Interactive chat: an interrupted answer does not end the program.
void forget_interrupt();
// 130 after SIGINT, 143 after SIGTERM, 0 before either.
int signal_exit_code();
bool terminated();

}  // namespace kedge::cli
