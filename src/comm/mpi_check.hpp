// Results of MPI in words, and MPI itself: initialised by whom, with what.
#pragma once

// The C++ bindings that old MPIs bring are not wanted.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <string>

namespace flatshard::detail {

/// "MPI_Isend failed: MPI_ERR_COMM: invalid communicator (5)".
std::string mpi_message(int code, const char* call);

/// Initialises MPI if nobody has. Throws UsageError when it has been finalised or gives less than
/// MPI_THREAD_MULTIPLE; `who` begins the message.
void expect_mpi(const std::string& who);
/// MPI may be called: initialised and not finalised.
bool is_mpi_alive() noexcept;
/// From now on MPI is not finalised by us: a rank is dead, or a message will never arrive, and
/// MPI_Finalize would wait for it.
void give_up_finalizing() noexcept;

}  // namespace flatshard::detail
