#include <flatshard/comm/solo.hpp>
#include <flatshard/ops/host_device.hpp>

#include <doctest/doctest.h>

#include "conformance_errors.hpp"
#include "conformance_order.hpp"
#include "conformance_values.hpp"

using namespace conformance;

namespace {

class SoloWorlds final : public Worlds {
 public:
  explicit SoloWorlds(StreamForm form) : form_(form) {}
  std::vector<int> sizes() const override { return {1}; }
  void run(int, const RankMain& rank_main) override {
    Solo solo(*kernels_);
    rank_main(solo);
  }
  std::unique_ptr<Stream> make_stream() const override { return make_host_stream(form_); }

 private:
  std::unique_ptr<const KernelTable> kernels_ = make_host_kernels({});
  StreamForm form_;
};

}  // namespace

TEST_CASE("solo conforms") {
  for (StreamForm form : {StreamForm::Inline, StreamForm::Threaded}) {
    SoloWorlds worlds(form);
    gathers_and_broadcasts(worlds, usual_counts);
    reductions_of_all_dtypes(worlds, usual_counts);
    splits(worlds);
    many_small_collectives(worlds, 100);
    synchronize_waits_for_all(worlds);
    buffers_are_free_afterwards(worlds);
    concurrent_streams(worlds);
    allocates_nothing(worlds);
    a_rank_may_leave_after_its_last_call(worlds);
    wrong_arguments_are_refused(worlds);
  }
}

TEST_CASE("solo: every call after an abort fails with the first message") {
  const auto kernels = make_host_kernels({});
  Solo solo(*kernels);
  InlineStream stream;
  float x = 0;
  solo.abort("disk full");
  solo.abort("again");
  const auto f32 = DType::Float32;
  const std::string text = "rank 0: disk full";
  CHECK(message_of([&] { solo.synchronize(); }) == text);
  CHECK(message_of([&] { solo.all_gather("x", &x, &x, 1, f32, stream); }) == text);
  CHECK(message_of([&] { solo.all_reduce("x", &x, &x, 1, f32, f32, stream); }) == text);
  CHECK(message_of([&] { solo.reduce_scatter("x", &x, &x, 1, f32, f32, stream); }) == text);
  CHECK(message_of([&] { solo.broadcast("x", &x, 1, f32, 0, stream); }) == text);
  CHECK(message_of([&] { solo.split(0, 0); }) == text);
}
