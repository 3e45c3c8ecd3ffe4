#include <flatshard/comm/mpi.hpp>

#include <fmt/format.h>

#include <cstring>

#include "mpi_communicator.hpp"

namespace flatshard {

namespace {

MPI_Comm user_communicator(const void* communicator, std::size_t bytes) {
  FLATSHARD_EXPECTS(bytes == sizeof(MPI_Comm),
                    fmt::format("adopt_mpi_communicator: it has {} bytes, and {} in the MPI that "
                                "flatshard was built with: it is of another MPI",
                                bytes, sizeof(MPI_Comm)));
  MPI_Comm adopted = MPI_COMM_NULL;
  std::memcpy(&adopted, communicator, bytes);
  FLATSHARD_EXPECTS(adopted != MPI_COMM_NULL, "adopt_mpi_communicator: it is MPI_COMM_NULL");
  int is_inter = 0;
  MPI_Comm_test_inter(adopted, &is_inter);
  FLATSHARD_EXPECTS(is_inter == 0, "adopt_mpi_communicator: it is an inter-communicator");
  return adopted;
}

}  // namespace

MpiWorld::MpiWorld(MpiOptions options) : options_(options) {
  detail::validate(options);
  detail::expect_mpi("MpiWorld");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
}

void MpiWorld::run(const std::function<void(Communicator&)>& rank_main) {
  const auto group = detail::make_mpi_world(MPI_COMM_WORLD, options_);
  detail::MpiSession& session = group->session();
  try {
    detail::MpiCommunicator communicator(group);
    rank_main(communicator);
  } catch (...) {
    session.fail(std::current_exception());
  }
  group->finish();
  session.close();
  if (session.failed()) session.throw_failure_with_cause();
}

std::unique_ptr<Communicator> detail::adopt_mpi(const void* communicator, std::size_t bytes,
                                                const MpiOptions& options) {
  validate(options);
  expect_mpi("adopt_mpi_communicator");
  return std::make_unique<MpiCommunicator>(
      make_mpi_world(user_communicator(communicator, bytes), options), true);
}

bool has_mpi() noexcept { return true; }

}  // namespace flatshard
