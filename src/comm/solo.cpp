#include <flatshard/comm/call.hpp>
#include <flatshard/comm/solo.hpp>
#include <flatshard/core/error.hpp>

namespace flatshard {

void Solo::all_gather(std::string_view label, const void* send, void* receive, Elements count,
                      DType dtype, StreamRef stream) {
  detail::expect_valid({Operation::AllGather, label, count, dtype, dtype}, size());
  move(send, receive, count, dtype, dtype, stream);
}

void Solo::reduce_scatter(std::string_view label, const void* send, void* receive, Elements count,
                          DType contribution, DType result, StreamRef stream) {
  detail::expect_valid({Operation::ReduceScatter, label, count, contribution, result}, size());
  move(send, receive, count, contribution, result, stream);
}

void Solo::all_reduce(std::string_view label, const void* send, void* receive, Elements count,
                      DType contribution, DType result, StreamRef stream) {
  detail::expect_valid({Operation::AllReduce, label, count, contribution, result}, size());
  move(send, receive, count, contribution, result, stream);
}

void Solo::broadcast(std::string_view label, void*, Elements count, DType dtype, Rank root,
                     StreamRef) {
  detail::expect_valid({Operation::Broadcast, label, count, dtype, dtype, root}, size());
  check();
}

std::unique_ptr<Communicator> Solo::split(int, int) {
  check();
  if (device_ != nullptr) return std::make_unique<Solo>(*device_);
  return std::make_unique<Solo>(kernels_);
}

void Solo::synchronize() { check(); }

void Solo::abort(std::string_view message) noexcept {
  if (aborted_) return;
  aborted_ = true;
  abort_message_ = message;
}

void Solo::check() const {
  if (aborted_) throw CommunicationError(0, abort_message_, {__FILE__, __LINE__});
}

void Solo::move(const void* send, void* receive, Elements count, DType from, DType to,
                StreamRef stream) {
  check();
  if (count > 0 && send != receive) kernels_.cast(send, from, receive, to, count, stream);
}

}  // namespace flatshard
