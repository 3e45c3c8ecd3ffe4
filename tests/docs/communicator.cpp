// A communicator of one's own around another one, as docs/writing_a_communicator.rst shows it.
#include <flatshard/flatshard.hpp>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "expect.hpp"
#include "linear.hpp"

namespace fsh = flatshard;

namespace {

// [meter]
using BytesByUnit = std::map<std::string, fsh::Bytes, std::less<>>;

/// Adds up what each unit's gathers send, in bytes, over a communicator and all parts of it.
class GatherMeter final : public fsh::CommunicatorDecorator {
 public:
  GatherMeter(fsh::Communicator& inner, BytesByUnit& sent)
      : CommunicatorDecorator(inner), sent_(sent) {}
  GatherMeter(std::unique_ptr<fsh::Communicator> inner, BytesByUnit& sent)
      : CommunicatorDecorator(std::move(inner)), sent_(sent) {}

  void all_gather(std::string_view label, const void* send, void* receive, fsh::Elements count,
                  fsh::DType dtype, fsh::StreamRef stream) override {
    const fsh::CollectiveCall call{fsh::Operation::AllGather, label, count, dtype, dtype};
    sent_[std::string(label)] += fsh::bytes_sent(call, rank(), size());
    CommunicatorDecorator::all_gather(label, send, receive, count, dtype, stream);
  }
  /// Parts are metered too: a Sharder works on parts of the communicator that it is given.
  std::unique_ptr<fsh::Communicator> split(int color, int key) override {
    return std::make_unique<GatherMeter>(inner().split(color, key), sent_);
  }

 private:
  BytesByUnit& sent_;
};
// [meter end]

}  // namespace

int main() {
  fsh::ThreadWorld{2}.run([](fsh::Communicator& comm) {
    fsh::Model model;
    auto layer = model.module("layer");
    auto weight = layer.add("weight", {outputs, inputs});
    // [use]
    BytesByUnit sent;
    GatherMeter meter{comm, sent};
    fsh::Sharder<> trainer{meter, model, fsh::AdamW{}};  // meter and sent outlive it
    // [use end]
    trainer.initialize(fsh::init::normal{0.02, 1});
    Batch batch = make_batch(0, comm.rank());
    trainer.forward(layer, [&](auto weights) { forward(weights[weight].data(), batch); });
    const fsh::Bytes half = outputs * inputs * 4 / 2;  // fp32, cut in two: the other rank's share
    expect(sent.at("layer/0") == half, "a rank sends its slice to the other, once");
    trainer.backward(layer, [&](auto, auto grads) { backward(grads[weight].data(), batch); });
    trainer.step().wait();
  });
}
