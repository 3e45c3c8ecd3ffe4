#include "mpi_check.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>

namespace flatshard::detail {

namespace {

std::atomic<bool> may_finalize{true};
std::mutex initializing;

void finalize_mpi() {
  if (may_finalize.load() && is_mpi_alive()) MPI_Finalize();
}

std::string_view name_of_thread_level(int level) {
  if (level == MPI_THREAD_SINGLE) return "MPI_THREAD_SINGLE";
  if (level == MPI_THREAD_FUNNELED) return "MPI_THREAD_FUNNELED";
  return level == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED" : "MPI_THREAD_MULTIPLE";
}

bool asks(int (*question)(int*)) noexcept {
  int answer = 0;
  return question(&answer) == MPI_SUCCESS && answer != 0;
}

}  // namespace

std::string mpi_message(int code, const char* call) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return fmt::format("{} failed: {} ({})", call, text.data(), code);
}

void expect_mpi(const std::string& who) {
  const std::lock_guard lock(initializing);
  FLATSHARD_EXPECTS(!asks(MPI_Finalized), who + ": MPI has been finalised");
  int level = MPI_THREAD_SINGLE;
  if (!asks(MPI_Initialized)) {
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    static_cast<void>(std::atexit(finalize_mpi));
  }
  MPI_Query_thread(&level);
  FLATSHARD_EXPECTS(level == MPI_THREAD_MULTIPLE,
                    fmt::format("{}: MPI gives {}, and MPI_THREAD_MULTIPLE is needed: initialise "
                                "it by MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...)",
                                who, name_of_thread_level(level)));
}

bool is_mpi_alive() noexcept { return asks(MPI_Initialized) && !asks(MPI_Finalized); }

void give_up_finalizing() noexcept { may_finalize.store(false); }

}  // namespace flatshard::detail
