// SPDX-License-Identifier: Apache-2.0
#include "harness/report/progress.h"

#include <algorithm>
#include <ostream>

#include "harness/base/format.h"

namespace r2bench {
namespace {

constexpr size_t kBarWidth = 20;

/// Eighths of a cell, so that the bar moves smoothly.
std::string bar(double share) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * kBarWidth * 8);
  std::string text;
  for (size_t i = 0; i < eighths / 8; ++i) text += "█";
  if (eighths % 8 > 0) text += kEighths[eighths % 8];
  return left(text, kBarWidth);
}

std::string seconds(std::chrono::milliseconds elapsed) {
  return fixed(static_cast<double>(elapsed.count()) * 1e-3, 1) + " s";
}

}  // namespace

std::string ProgressPrinter::state(const Progress& p) const {
  std::string text = p.mode;
  if (p.pairs > 0) text += " (pair " + std::to_string(p.pair + 1) + " of " + std::to_string(p.pairs) + ")";
  if (p.repeats > 1)
    text += " (fault " + std::to_string(std::min(p.repetition + 1, p.repeats)) + " of " +
            std::to_string(p.repeats) + ")";
  text += "  ";
  if (p.iterations > 0) {
    const double share = static_cast<double>(p.iteration) / static_cast<double>(p.iterations);
    if (style_.live) text += "▕" + bar(share) + "▏ ";
    text += std::to_string(p.iteration) + "/" + std::to_string(p.iterations);
  } else {
    text += std::to_string(p.iteration) + " iterations";
  }
  text += "  " + right(short_number(p.gbps), 5) + " Gbit/s  " + right(seconds(p.elapsed), 6);
  if (p.phase != "running" && p.phase != "armed") text += "  " + p.phase;
  return text;
}

void ProgressPrinter::happened(const Progress& p) {
  clear();
  const std::string dim = style_.colour ? "\033[2m" : "";
  const std::string plain = style_.colour ? "\033[0m" : "";
  out_ << dim << "  " << right(seconds(p.elapsed), 7) << plain << "  " << p.mode << "  " << p.note << "\n"
       << std::flush;
}

void ProgressPrinter::show(const Progress& p, std::chrono::steady_clock::time_point now) {
  const bool new_job = !shown_ || p.mode != mode_ || p.pair != pair_;
  if (new_job) {
    clear();
    if (p.pairs == 0)
      out_ << "  mode " << p.mode_index + 1 << " of " << p.mode_count << ": " << p.mode << "\n" << std::flush;
    note_.clear();
  }
  if (!p.note.empty() && p.note != note_) happened(p);
  const auto interval = style_.live ? std::chrono::milliseconds(100) : std::chrono::milliseconds(1000);
  const bool due = !shown_ || now - last_ >= interval;
  const bool changed = new_job || p.phase != phase_;
  if (style_.live && (due || changed)) {
    out_ << "\r\033[K" << cut("  " + state(p), style_.columns - 1) << std::flush;
    line_is_open_ = true;
  } else if (!style_.live && due && p.pairs == 0) {
    out_ << "  " << state(p) << "\n" << std::flush;
  } else if (!style_.live && p.pairs > 0 && new_job) {
    out_ << "  " << state(p) << "\n" << std::flush;
  }
  if (due || (style_.live && changed)) last_ = now;
  mode_ = p.mode;
  pair_ = p.pair;
  phase_ = p.phase;
  note_ = p.note;
  shown_ = true;
}

void ProgressPrinter::clear() {
  if (line_is_open_) out_ << "\r\033[K" << std::flush;
  line_is_open_ = false;
}

}  // namespace r2bench
