// Trains the perceptron of mlp.hpp; before.cpp does so alone, after.cpp over four ranks.
#include <cstdio>
#include <flatshard/flatshard.hpp>

#include "mlp.hpp"

void train(flatshard::Communicator& comm) {
  flatshard::Model model;
  auto first = model.module("hidden"), last = model.module("output");
  auto w1 = first.add("weight", {hidden, inputs}), b1 = first.add("bias", {hidden});
  auto w2 = last.add("weight", {outputs, hidden}), b2 = last.add("bias", {outputs});
  flatshard::Sharder<> trainer{comm, model, flatshard::AdamW{.lr = 0.01}};
  for (auto p : {w1, b1, w2, b2}) trainer.assign<float>(p, initial_values(p.index));

  for (int step = 1; step <= 200; ++step) {
    Batch batch = make_batch(step, comm.rank(), comm.size());
    float loss = 0;
    trainer.forward(first, [&](auto w) { forward1(w[w1].data(), w[b1].data(), batch); });
    trainer.forward(last, [&](auto w) { loss = forward2(w[w2].data(), w[b2].data(), batch); });
    trainer.backward(
        last, [&](auto w, auto g) { backward2(w[w2].data(), g[w2].data(), g[b2].data(), batch); });
    trainer.backward(first, [&](auto, auto g) { backward1(g[w1].data(), g[b1].data(), batch); });
    trainer.step();
    comm.all_reduce("loss", &loss, &loss, 1, flatshard::DType::Float32, flatshard::DType::Float32,
                    trainer.engine().compute_stream());
    if (comm.rank() == 0 && step % 20 == 0)
      std::printf("step %3d  loss %.6f\n", step, static_cast<double>(loss) / samples);
  }
}

int main() { flatshard::ThreadWorld{4}.run(train); }
