#include <flatshard/core/error.hpp>
#include <flatshard/io/slot_pipeline.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace flatshard {
namespace {

Bytes largest_slot(const SlotStore& store) {
  Bytes largest = 0;
  for (std::size_t slot = 0; slot < store.slots(); ++slot)
    largest = std::max(largest, store.bytes(slot));
  return round_up(largest, SlotStore::alignment);
}

}  // namespace

Bytes SlotPipeline::buffer_bytes(std::span<const Bytes> slot_bytes, int buffers) {
  Bytes largest = 0;
  for (const Bytes bytes : slot_bytes) largest = std::max(largest, bytes);
  return buffers * round_up(largest, SlotStore::alignment);
}

SlotPipeline::SlotPipeline(SlotStore& store, MemoryResource& memory, int buffers) : store_(store) {
  FLATSHARD_EXPECTS(buffers >= 1, fmt::format("SlotPipeline: {} buffers", buffers));
  for (int n = 0; n < buffers; ++n) places_.push_back({Buffer(memory, largest_slot(store))});
}

SlotPipeline::~SlotPipeline() { abandon(); }

SlotPipeline::Place* SlotPipeline::find(std::size_t slot) {
  const auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& place) {
    return place.state != State::Free && place.slot == slot;
  });
  return found == places_.end() ? nullptr : &*found;
}

/// A buffer for the slot without waiting, if there is one.
SlotPipeline::Place* SlotPipeline::take(std::size_t slot) {
  for (std::size_t n = 0; n < places_.size(); ++n) {
    Place& place = places_[(next_ + n) % places_.size()];
    if (place.state == State::Writing && store_.finished(place.slot)) settle(place);
    if (place.state != State::Free) continue;
    next_ = (next_ + n + 1) % places_.size();
    place.slot = slot;
    return &place;
  }
  return nullptr;
}

/// A buffer for the slot, after a write if need be.
SlotPipeline::Place& SlotPipeline::wait_for_place(std::size_t slot) {
  if (Place* place = take(slot)) return *place;
  for (std::size_t n = 0; n < places_.size(); ++n) {
    Place& place = places_[(next_ + n) % places_.size()];
    if (place.state != State::Writing) continue;
    settle(place);
    return *take(slot);
  }
  FLATSHARD_EXPECTS(false, fmt::format("SlotPipeline: slot {}: all {} buffers hold other slots",
                                       slot, places_.size()));
}

/// Ends what is in flight. An error leaves the buffer free.
void SlotPipeline::settle(Place& place) {
  const State reached = place.state == State::Writing ? State::Free : State::Here;
  place.state = State::Free;
  store_.wait(place.slot);
  place.state = reached;
}

bool SlotPipeline::prefetch(std::size_t slot, std::int64_t tag) {
  Place* place = find(slot);
  if (place != nullptr && place->state != State::Writing) return true;
  if (place != nullptr && !store_.finished(slot)) return false;
  if (place != nullptr) settle(*place);
  place = take(slot);
  if (place == nullptr) return false;
  store_.begin_read(slot, tag, bytes_of(*place));
  place->state = State::Reading;
  return true;
}

std::span<std::byte> SlotPipeline::wait_for(std::size_t slot, std::int64_t tag) {
  Place* place = find(slot);
  if (place != nullptr && place->state == State::Writing) {
    settle(*place);
    place = nullptr;
  }
  if (place == nullptr) {
    place = &wait_for_place(slot);
    store_.begin_read(slot, tag, bytes_of(*place));
    place->state = State::Reading;
  }
  if (place->state == State::Reading) settle(*place);
  return bytes_of(*place);
}

std::span<std::byte> SlotPipeline::wait_for_empty(std::size_t slot) {
  Place* place = find(slot);
  if (place != nullptr && place->state != State::Here) settle(*place);
  if (place == nullptr || place->state == State::Free) place = &wait_for_place(slot);
  place->state = State::Here;
  return bytes_of(*place);
}

SlotPipeline::Place& SlotPipeline::here(const char* call, std::size_t slot) {
  Place* place = find(slot);
  FLATSHARD_EXPECTS(place != nullptr && place->state == State::Here,
                    fmt::format("SlotPipeline::{}: slot {} is not here", call, slot));
  return *place;
}

void SlotPipeline::put_back(std::size_t slot, std::int64_t tag) {
  Place& place = here("put_back", slot);
  store_.begin_write(slot, tag, bytes_of(place));
  place.state = State::Writing;
}

void SlotPipeline::wait_and_drop(std::size_t slot) {
  Place* place = find(slot);
  if (place == nullptr) return;
  if (place->state != State::Here) settle(*place);
  place->state = State::Free;
}

void SlotPipeline::wait_all() {
  for (Place& place : places_)
    if (place.state == State::Writing) settle(place);
}

void SlotPipeline::prefetch_some(std::span<const std::size_t> slots, std::int64_t tag) {
  for (const std::size_t slot : slots)
    if (!prefetch(slot, tag)) return;
}

void SlotPipeline::abandon() noexcept {
  for (Place& place : places_) {
    try {
      if (place.state == State::Reading || place.state == State::Writing) settle(place);
    } catch (...) {
      // Of a request that nobody asks for any more.
    }
    place.state = State::Free;
  }
}

std::span<std::byte> SlotPipeline::bytes_of(const Place& place) const {
  return {static_cast<std::byte*>(place.buffer.data()),
          static_cast<std::size_t>(store_.bytes(place.slot))};
}

}  // namespace flatshard
