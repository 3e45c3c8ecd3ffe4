#include <flatshard/ops/cuda_steps.hpp>

#include <map>
#include <mutex>
#include <typeindex>

namespace flatshard {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::type_index, CudaStepFinder> finders;
};

/// Never destroyed: objects with static storage may register and ask in any order.
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

}  // namespace

void register_cuda_step(const std::type_info& functor, CudaStepFinder finder) {
  const std::lock_guard lock(registry().mutex);
  registry().finders[functor] = finder;
}

CudaStep registered_cuda_step(const std::type_info& functor, const StepRow& row) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().finders.find(functor);
  return found == registry().finders.end() ? nullptr : found->second(row);
}

}  // namespace flatshard
