#include "../sharded_trainer.hpp"

namespace train_gpt {

template TrainerType<flatshard::Bf16> trainer_type<flatshard::precision::Bf16Stochastic>(Strategy);

}  // namespace train_gpt
