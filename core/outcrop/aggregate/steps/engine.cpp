#include "outcrop/aggregate/steps/engine.hpp"

#include <algorithm>
#include <string>

#include "outcrop/aggregate/steps/step.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

void Engine::begin(const std::shared_ptr<Step> &step, bool beside) {
  while (under_way.size() >= under_way_most) {
    const std::shared_ptr<Step> oldest = under_way.front();
    oldest->settle();
  }
  under_way.push_back(step);
  try {
    step->start(beside);
  } catch (const std::exception &error) {  // no thread, no memory: this rank cannot do its part
    const std::string reason = "rank " + std::to_string(link.rank()) + " cannot begin: " + error.what();
    break_off(reason);
    throw CommunicationError(reason);
  }
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

void Engine::break_off(const std::string &reason) {
  node->give_up(reason);
  helper.drain();
  // Messages are sent from memory of steps, and received into it. What the transport cannot stop using is never freed.
  if (!link.abandon()) {
    new std::deque<std::shared_ptr<Step>>(under_way);
    node->keep_memory();
  }
  under_way.clear();
}

}  // namespace outcrop::aggregate
