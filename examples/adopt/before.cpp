// Trains the perceptron of mlp.hpp; before.cpp does so alone, after.cpp over four ranks.
#include <cstdio>

#include "adamw.hpp"
#include "mlp.hpp"

void train() {
  Parameter w1(initial_values(0)), b1(initial_values(1));
  Parameter w2(initial_values(2)), b2(initial_values(3));

  for (int step = 1; step <= 200; ++step) {
    Batch batch = make_batch(step);
    float loss = 0;
    forward1(w1.value.data(), b1.value.data(), batch);
    loss = forward2(w2.value.data(), b2.value.data(), batch);
    backward2(w2.value.data(), w2.gradient.data(), b2.gradient.data(), batch);
    backward1(w1.gradient.data(), b1.gradient.data(), batch);
    for (Parameter* parameter : {&w1, &b1, &w2, &b2}) adamw(*parameter, step, 0.01F);
    if (step % 20 == 0)
      std::printf("step %3d  loss %.6f\n", step, static_cast<double>(loss) / samples);
  }
}

int main() { train(); }
