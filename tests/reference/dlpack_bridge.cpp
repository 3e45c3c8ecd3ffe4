// What dlpack_numpy.py calls: tensors of a Sharder for NumPy, and NumPy's for us.
#include <flatshard/comm/solo.hpp>
#include <flatshard/ops/host_device.hpp>
#include <flatshard/sharder/exported.hpp>

#include <algorithm>
#include <string>

namespace {

using namespace flatshard;
using Trainer = Sharder<strategy::NoShard, precision::Full<float>, offload::None>;

/// A trainer of one rank and all that it needs; lives until the last tensor was given back.
struct Session {
  Session() : module(model.module("layer")), weight(module.add("weight", {3, 5})) {
    trainer = std::make_unique<Trainer>(solo, model, AdamW{.lr = 0.5});
    std::vector<float> values(15);
    for (std::size_t i = 0; i < 15; ++i) values[i] = static_cast<float>(i) / 4;
    trainer->assign<float>(weight, values);
    trainer->backward(module, [&](auto, auto grads) { grads[weight][7] = 2; });
    trainer->step({.gradient_divisor = 1});
    trainer->synchronize();
  }
  HostDevice device;
  Solo solo{device};
  Model model;
  Module module;
  Parameter weight;
  std::unique_ptr<Trainer> trainer;
};

std::shared_ptr<Session> session;
std::weak_ptr<Session> watched;
std::string answer;

/// The session owns the trainer; whoever has this pointer keeps both.
std::shared_ptr<Trainer> shared_trainer() { return {session, session->trainer.get()}; }

template <class Element, class Managed>
const char* doubled(Managed* tensor) {
  try {
    const dlpack::Imported imported(tensor);
    for (Element& value : imported.view<Element>().flat()) value = static_cast<Element>(2 * value);
    answer = "done";
  } catch (const UsageError& error) {
    answer = error.what();
  }
  return answer.c_str();
}

}  // namespace

extern "C" {

void open_session() {
  session = std::make_shared<Session>();
  watched = session;
}
void close_session() { session.reset(); }
int session_lives() { return watched.expired() ? 0 : 1; }

/// 0: weights; 1: master; 2: gradient; from 3 on: states.
dlpack::DLManagedTensorVersioned* export_tensor(int which) {
  if (which == 0)
    return export_weights(shared_trainer(), session->module, session->weight).release();
  ExportedShard shard = export_local(shared_trainer(), session->weight);
  if (which == 1) return shard.master.release();
  if (which == 2) return shard.gradient.release();
  return shard.states[static_cast<std::size_t>(which - 3)].release();
}
dlpack::DLManagedTensor* export_gradient_unversioned() {
  const LocalShard local = session->trainer->local(session->weight);
  const std::int64_t count = local.count;
  return dlpack::export_unversioned({local.gradient, DType::Float32, {&count, 1}, {}, true},
                                    shared_trainer())
      .release();
}

/// "done", or why the tensor cannot be written to.
const char* double_floats(dlpack::DLManagedTensorVersioned* tensor) {
  return doubled<float>(tensor);
}
const char* double_integers(dlpack::DLManagedTensorVersioned* tensor) {
  return doubled<std::int64_t>(tensor);
}
const char* double_unversioned(dlpack::DLManagedTensor* tensor) { return doubled<float>(tensor); }

/// "done", or why the weight cannot be had from the tensor.
const char* assign_weight(dlpack::DLManagedTensorVersioned* tensor) {
  try {
    const dlpack::Imported imported(tensor);
    const auto values = imported.view<const double>();
    session->trainer->assign(session->weight, values.flat());
    answer = "done";
  } catch (const UsageError& error) {
    answer = error.what();
  }
  return answer.c_str();
}
}
