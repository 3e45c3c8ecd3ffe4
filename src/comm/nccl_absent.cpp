// NCCL in a build without it: who asks for it is told why there is none.
#include <flatshard/comm/nccl.hpp>
#include <flatshard/core/error.hpp>

namespace flatshard {

namespace {

[[noreturn]] void throw_absent() {
  throw UsageError(
      "flatshard was built without NCCL: configure it with -Dcuda=enabled -Dnccl=enabled",
      {__FILE__, __LINE__});
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(ControlChannel&, CudaDevice&,
                                                     const NcclOptions&) {
  throw_absent();
}

std::unique_ptr<Communicator> adopt_nccl_communicator(void*, CudaDevice&, const NcclOptions&) {
  throw_absent();
}

NcclWorld::NcclWorld(int size, NcclOptions options) : size_(size), options_(options) {
  throw_absent();
}
void NcclWorld::run(const std::function<void(Communicator&)>&) { throw_absent(); }

}  // namespace flatshard
