#include "outcrop/aggregate/engine.hpp"

#include <algorithm>

#include "outcrop/aggregate/step.hpp"

namespace outcrop::aggregate {

void Engine::begin(const std::shared_ptr<Step> &step, bool beside) {
  while (under_way.size() >= under_way_most) {
    const std::shared_ptr<Step> oldest = under_way.front();
    oldest->settle();
  }
  under_way.push_back(step);
  step->start(beside);
}

// A step's messages begin when those of the one before are over; all ranks do this alike, so messages meet in order.
void Engine::advance() {
  while (!under_way.empty() && under_way.front()->advance()) {
    const std::shared_ptr<Step> first = under_way.front();
    under_way.pop_front();
    first->finish();
  }
}

bool Engine::sends() const {
  return std::ranges::any_of(under_way, [](const std::shared_ptr<Step> &step) { return step->sends(); });
}

void Engine::settle_all() {
  while (!under_way.empty()) {
    const std::shared_ptr<Step> oldest = under_way.front();
    oldest->settle();
  }
}

// The caller may take back its memory after this.
void Engine::break_off(const std::string &reason) {
  node->give_up(reason);
  helper.drain();
  under_way.clear();
}

}  // namespace outcrop::aggregate
