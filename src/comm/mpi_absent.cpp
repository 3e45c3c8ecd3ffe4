// MPI in a build without it: who asks for it is told why there is none.
#include <flatshard/comm/mpi.hpp>
#include <flatshard/core/error.hpp>

namespace flatshard {

namespace {

[[noreturn]] void throw_mpi_absent() {
  throw UsageError("flatshard was built without MPI: configure it with -Dmpi=enabled",
                   {__FILE__, __LINE__});
}

}  // namespace

MpiWorld::MpiWorld(MpiOptions options) : options_(options) { throw_mpi_absent(); }
void MpiWorld::run(const std::function<void(Communicator&)>&) { throw_mpi_absent(); }

std::unique_ptr<Communicator> detail::adopt_mpi(const void*, std::size_t, const MpiOptions&) {
  throw_mpi_absent();
}

bool has_mpi() noexcept { return false; }

}  // namespace flatshard
