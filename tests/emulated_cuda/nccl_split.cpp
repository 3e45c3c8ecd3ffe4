// ncclCommSplit.
#include <algorithm>
#include <atomic>

#include "nccl_clique.hpp"

using namespace emulated;

namespace {

/// All ranks have called: makes the children, as NCCL's own threads do.
void finish_split(Clique& clique) {
  using Named = std::pair<const int, Splitter>;
  std::map<int, std::vector<Named*>> parts;
  for (Named& splitter : clique.splitters)
    if (splitter.second.color != NCCL_SPLIT_NOCOLOR)
      parts[splitter.second.color].push_back(&splitter);
  for (auto& [color, part] : parts) {
    std::stable_sort(part.begin(), part.end(), [](const Named* left, const Named* right) {
      return left->second.key < right->second.key;
    });
    const auto child = std::make_shared<Clique>(static_cast<int>(part.size()));
    child->joined = child->size;
    int rank = 0;
    for (const Named* splitter : part) {
      const Splitter& of = splitter->second;
      std::atomic_ref<ncclComm_t>(*of.child).store(
          make_communicator(child, rank++, of.device, of.blocking));
    }
  }
  clique.splitters.clear();
  clique.changed.notify_all();
}

}  // namespace

extern "C" ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* child,
                                      ncclConfig_t* config) {
  Member& member = *parent->member;
  Clique& clique = *member.clique;
  *child = nullptr;
  const bool blocking = config == nullptr ? member.blocking : config->blocking != 0;
  std::unique_lock lock(clique.mutex);
  clique.splitters[member.rank] = {color, key, child, member.device, blocking};
  if (static_cast<int>(clique.splitters.size()) == clique.size) finish_split(clique);
  if (!member.blocking) return ncclInProgress;
  clique.changed.wait(lock, [&] { return !clique.splitters.contains(member.rank); });
  return ncclSuccess;
}
