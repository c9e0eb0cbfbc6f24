#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows what the simulation finds. Removes a rule of the protocol from the core, or reintroduces a defect, builds `simulate`,
and runs it until a history is wrong. Needs a checkout of its own, because it changes the sources and restores them.

    put_back.py CHECKOUT BUILD [--minutes 10] [--jobs 1] [--only NAME …]      e.g. put_back.py . build/release --minutes 2
    put_back.py --readme                                                 writes the README's table from the record
    put_back.py --check CHECKOUT                                         checks that each text to be changed is there exactly once, and the table

Each run becomes a line of the record (put_back.csv beside this file, in the checkout), and replaces the older line of that name: how many
histories had run until one was wrong, for how long, its seed, and what it violates. The same seed must be right without the defect."""
import argparse
import contextlib
import csv
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[3] / 'harness' / 'base'))
import origin  # noqa: E402

C, P, S = 'r2ccl/channel/', 'r2ccl/protocol/', 'r2ccl/service/'
SEND = 'template <typename T>\nvoid Channel::send(wire::Type type, const T& message) {\n'


def twice(kind, behind):
    """The control connection delivers nothing twice. Rules on repeated messages expect that it may: this one's last message of
    that kind follows what it says of kind `behind`."""
    return (C + 'channel.h', SEND, f'template <typename T>\ninline std::map<const void*, T> last_said;\n{SEND}'
            f'  if constexpr (std::is_same_v<T, wire::{kind}>) last_said<T>[this] = message;\n'
            f'  struct Again {{\n    Channel& c;\n    ~Again() {{\n      if constexpr (std::is_same_v<T, wire::{behind}>)\n'
            f'        if (auto it = last_said<wire::{kind}>.find(&c); it != last_said<wire::{kind}>.end())\n'
            f'          c.link_.say(uint16_t(wire::Type::k{kind}), std::as_bytes(std::span(&it->second, 1)));\n    }}\n  }} again{{*this}};\n')


# name: [(file, what is there, what is put there)]
DEFECTS = {
    # defects that there were
    'the fence counts from before the driver call': [(P + 'fence.h', 'return late && seen.stuck ?', 'return alive - since_ > bound_ / 5 ?')],
    'the fail bound counts queueing': [(P + 'search.h', 'if (is_queued(phase == Phase::kFencing ? host.fence_call() : host.opening_call())) {', 'if (false) {')],
    'EIO is taken for a fence': [(P + 'fence.h', 'if (seen.refused && seen.failed) return of_failed(host, NoFence::kRefusedByFailed);',
                                  'if (seen.refused && seen.failed) return {FenceAct::kDone};')],
    'the last ACK is kept for 2 s only': [(P + 'closing.h', 'kLastWordNs = 15\'000\'000\'000', 'kLastWordNs = 2\'000\'000\'000')],
    'a control connection without answers is kept for 10 s': [('r2ccl/control/socket.cc', 'is_short ? 1\'000 : 10\'000', '10\'000'), ('r2ccl/control/socket.cc', 'TCP_KEEPIDLE, is_short ? 1 : 2', 'TCP_KEEPIDLE, 9')],
    'a control connection without answers counts as refused': [(C + 'outage.cc', 'link_.asking() && !silent;', 'link_.asking();')],
    'the peer\'s last ACK is taken for the NIC\'s completion': [(C + 'sender.h', 'sending_.peer_closed(close.received);', 'sending_.ledger.released(close.received);')],
    'epoll no longer watches a channel\'s connection': [(S + 'service.cc', '  entry.watched_fd = fd;\n  entry.watched_connection', '  entry.unwatched = false;\n  entry.watched_fd = fd;\n  entry.watched_connection')],
    'two NICs that fail share one backup': [(P + 'nic_choice.h', '    others.push_back({{std::round(carried)', '    carried = backup.crosses ? 2.0 : 1.0;\n    others.push_back({{std::round(carried)'),
                                      (C + 'spreading.cc', 'void SenderPaths::step_spread(const Tick& tick) {\n', 'void SenderPaths::step_spread(const Tick& tick) {\n  if (tick.now > 0) return;\n')],
    'an abandoned connect is never cleaned up': [(P + 'owner_claim.h', 'if (owner_.load() != Owner::kAwaited) return false;', 'if (owner_.load() >= Owner::kTaken) return false;')],
    'the log names another NIC': [(S + 'service_nics.cc', 'port of NIC %s of %s %s", context_.devices[nic].name()', 'port of NIC %s of %s %s", context_.devices[(nic + 1) % context_.devices.size()].name()')],
    'the log tells a wrong migration time': [(C + 'migration.cc', '(now_ns() - moving_since) / 1000)', '(now_ns() - moving_since) / 900)')],
    'traffic stays away from home': [(P + 'failback.h', 'if (rail_.settled(now)) return FailbackAct::kReturn;', '')],
    'a lane carries nothing': [('r2ccl/balance/splitter.h', 'if (spread.over.size() == 1 && active_first) spread.over.clear();', 'spread.over.clear();')],
    'the last lane carries nothing': [('r2ccl/balance/splitter.h', 'i < carriers.size() && i < shares.size()', 'i < carriers.size() && i + 1 < shares.size()')],
    # What the log says of failures.
    'a failed completion is reported as a stall': [(C + 'channel.cc', 'path.mark_failed(trace::DetectedBy::kCompletion,', 'path.mark_failed(trace::DetectedBy::kWatchdog,')],
    'a port event is reported as a stall': [(C + 'paths.cc', '(*this, tick, trace::DetectedBy::kEvent, why);', '(*this, tick, trace::DetectedBy::kWatchdog, why);')],
    'a failure that the peer reported is reported as an event': [(C + 'paths.cc', '(*this, tick, trace::DetectedBy::kPeer,\n', '(*this, tick, trace::DetectedBy::kEvent,\n')],
    'a stall is reported as a failed completion': [(C + 'watchdog.cc', 'begin_migration(path, trace::DetectedBy::kWatchdog,', 'begin_migration(path, trace::DetectedBy::kCompletion,')],
    'the log names the wrong detector for a channel': [(C + 'migration.cc', 'rail_name(path).c_str(), trace::name(by).data(), why.c_str());', 'rail_name(path).c_str(), "event", why.c_str());')],
    'the log names the wrong detector for the peer': [(C + 'migration.cc', 'rail_name(path).c_str(), trace::name(by).data());', 'rail_name(path).c_str(), "completion");')],
    'the log names the wrong detector for a NIC': [('r2ccl/health/failure_log.cc', '" (detected by " + failure.by + "); "', '" (detected by completion); "')],
    'the duration of a failure counts from its first channel': [('r2ccl/health/failure_log.cc', 'std::max(failure.longest, now - it->second)', 'std::max(failure.longest, now - failure.began)')],
    'the duration of a search counts from its last channel': [('r2ccl/health/failure_log.cc', 'in_ms(now - failure.began) + " of search"', 'in_ms(now - failure.last) + " of search"')],
    'the log tells a wrong outage time': [(C + 'outage.cc', 'outage_.restored(now_ns()) / 1000', 'outage_.restored(now_ns()) / 900')],
    'the log tells the time of a driver call in microseconds': [('r2ccl/path/nic_workers.cc', 'static_cast<unsigned long long>((alive - worker->seen_since) / kNsPerMs)', 'static_cast<unsigned long long>((alive - worker->seen_since) / 1000)')],
    'the log counts one retransmitted segment too many': [('r2ccl/health/failure_log.cc', 'failure.segments += segments;', 'failure.segments += segments + 1;')],
    'the log tells the time without a flush in microseconds': [(C + 'fence.cc', 'static_cast<unsigned long long>(fence_.silence(tick.alive) / kNsPerMs)', 'static_cast<unsigned long long>(fence_.silence(tick.alive) / 1000)')],
    'the trace tells a wrong fence time': [(C + 'fence.cc', '(now_ns() - migration_started_) / 1000)', '(now_ns() - migration_started_) / 900)')],
    # rules
    'receiver_fence': [(P + 'migration.h', 'if (!sender_ || peer_ == Fence::kPending)', 'if (sender_ && peer_ == Fence::kPending)\n      phase_ = Phase::kChoosing;\n    else if (!sender_)')],
    'sender_fence': [(P + 'migration.h', 'if (own_ != Fence::kPending) follow();', 'own_ = Fence::kDone;\n    follow();')],
    'receiver_sentinel': [(P + 'fence.h', 'if (seen.flushed || !host', 'if (seen.flushed || !sender_ || !host')],
    'sender_sentinel': [(P + 'fence.h', 'if (seen.flushed || !host', 'if (seen.flushed || sender_ || !host')],
    'one_fence': [(P + 'fence.h', 'return {host.holds(Rule::kOneFence) ?', 'return {!host.holds(Rule::kOneFence) ?')],
    'refused_not_fenced': [(P + 'fence.h', 'return seen.refused || seen.reported || seen.removed; }', 'return seen.refused && seen.reported && seen.removed && false; }')],
    'kernel_fence': [(P + 'channel_end.h', 'if (!host_.holds(Rule::kKernelFence) &&', 'if (host_.holds(Rule::kKernelFence) &&')],
    'given_up_fence': [(C + 'fence.cc', 'Path* path = paths_.reclaim(end_.leaving());', 'return fence_done(tick);\n  Path* path = paths_.reclaim(end_.leaving());')],
    # A number that is used twice; a queue pair in ERR cannot be.
    'new_queue_pairs': [(P + 'opening.h', 'path_ = next_++;', 'path_ = next_ < 3 ? next_++ : next_;')],
    'strict_ack': [(P + 'ledger.h', 'return completed && (!strict || message < confirmed_);', 'return completed;')],
    'nic_report': [(P + 'ledger.h', 'return completed && (!strict || message < confirmed_);', 'return message < confirmed_;')],
    'receiver_is_right': [(P + 'ledger.h', '    if (first > next_) return;\n', '    if (first <= next_ || first > next_) return;\n')],
    'migrate_epoch': [twice('Migrate', 'Migrate'), (P + 'channel_end.h', 'host_.holds(Rule::kMigrateEpoch) ? epoch : end_.epoch() + 1', 'end_.epoch() + 1')],
    'fenced_epoch': [twice('Fenced', 'Migrate'), (P + 'migration.h', 'if (epoch != epoch_ || path != leaving_ || phase_ == Phase::kRunning) return false;', 'if (phase_ == Phase::kRunning) return false;')],
    'use_epoch': [twice('Use', 'Migrate'), (P + 'migration.h', 'if (sender_ || epoch != epoch_ || (phase_', 'if (sender_ || (phase_')],
    # What a connection repeats comes in the opposite order.
    'order': [('r2ccl/control/link.cc', 'for (const auto& frame : unseen_)\n    stream_.outgoing.insert(stream_.outgoing.end(), frame.begin(), frame.end());',
               'for (auto it = unseen_.rbegin(); it != unseen_.rend(); ++it)\n    stream_.outgoing.insert(stream_.outgoing.end(), it->begin(), it->end());'),
              ('r2ccl/control/frame.cc', 'if (header.counter != counter_)', 'if (header.counter > counter_ + 1000)')],
    'repeat_cts': [(P + 'receiving.h', 'if (!host.holds(Rule::kRepeatCts)) return;', 'return;')],
    'repeat_ack': [(P + 'sending.h', 'if (host.acknowledges() && host.holds(Rule::kRepeatAck))', 'if (false)')],
    'silent_loss': [(P + 'sending.h', 'if (!ack_query_.answered(up_to) || ', 'if (!ack_query_.answered(up_to) || host.active() != 0 || ')],
    'stuck_queue_pair': [(P + 'watchdog.h', 'stall_.stuck() ? host.stands_still() : 0', 'stall_.stuck() && false ? host.stands_still() : 0')],
    'watchdog': [(P + 'stall_timer.h', 'silence_ += step_;', 'silence_ += 0 * step_;')],
    'copy_kept': [(C + 'sender.h', 'return request.message == message && (in_use(request) || request.copied);', 'return request.message == message && in_use(request);')],
    'request_ack_query': [(P + 'receiving.h', 'if (waits() && host.peer_copies() && ', 'if (false && ')],
    'watch_after_request': [(P + 'sending.h', 'awaited_ = host.holds(Rule::kWatchAfterRequest) && ', 'awaited_ = false && ')],
    'settle': [(P + 'sending.h', 'if (!host.holds(Rule::kSettle)) return false;', 'if (host.holds(Rule::kSettle)) return false;')],
    'last_ack': [(P + 'receiving.h', 'rules.holds(Rule::kLastAck) ? ledger.received() : 0', 'rules.holds(Rule::kLastAck) ? 0 : ledger.received()')],
    'lacking_counts': [(P + 'sending.h', 'if (wanted || !host.holds(Rule::kLackingCounts)) return wanted;', 'if (true) return wanted;')],
    'live_segments': [(P + 'sent.h', 'host.holds(Rule::kLiveSegments) ?', 'false ?')],
    'nic_report_on_lanes': [(P + 'sent.h', 'host.holds(Rule::kNicReportOnLanes) ?', 'false ?')],
    'segments_of_the_path': [(C + 'request.h', '    uint32_t bytes = 0;\n', '    uint32_t bytes = 0;\n    mutable bool written = false;\n'),
                             (C + 'sender.cc', '  if (error == 0) {\n', '  if (error == 0) {\n    part.written = true;\n'),
                             (C + 'sender.cc', 'static constexpr bool written(uint64_t, uint32_t) { return true; }',
                              'bool written(uint64_t message, uint32_t segment) const { return request(message).parts[segment].written; }'),
                             # Assigned to another path, it is to be written there.
                             (C + 'sender.cc', '    request.parts[segment].path = path->id();\n', '    request.parts[segment].path = path->id();\n    request.parts[segment].written = false;\n'),
                             (P + 'sent.h', 'if (!host.holds(Rule::kSegmentsOfPath) && ', 'if (')],
    'sender_first': [(P + 'migration.h', 'if (at_once && sender_) return MigrateReply::kOther;', ''), (P + 'migration.h', 'if (epoch <= epoch_ && !at_once)', 'if (epoch <= epoch_)')],
    'fenced_path': [(P + 'migration.h', 'if (epoch != epoch_ || path != leaving_ ||', 'if (epoch != epoch_ ||')],
    'drop_receivers_path': [(P + 'channel_end.h', 'if (!host_.holds(Rule::kDropReceiversPath)) return;', 'return;')],
    'lane_given_up': [(P + 'channel_end.h', 'if (state == PathState::kActive || host_.holds(Rule::kLaneGivenUp)) mark_failed(path);', 'if (state == PathState::kActive) mark_failed(path);')],
    'rest_reported': [(P + 'sending.h', 'if (!reported && messages', 'if (false && messages')],
    'rest_confirmed': [(P + 'sending.h', 'return !messages.holds(Rule::kRestConfirmed) || all', 'return true || all')],
    # It comes once more, behind the next kLane.
    'rest_once': [(C + 'actions.h', 'void send_lane(uint32_t id) { c_.send(wire::Type::kLane, wire::PathMessage{id}); }',
                   'static inline std::map<const void*, uint32_t> rested;\n  void send_lane(uint32_t id) {\n    c_.send(wire::Type::kLane, wire::PathMessage{id});\n'
                   '    if (rested[&c_] == id) c_.send(wire::Type::kRest, wire::PathMessage{id});\n  }'),
                  (C + 'actions.h', 'void send_rest(uint32_t id) { c_.send(', 'void send_rest(uint32_t id) {\n    rested[&c_] = id;\n    c_.send(')],
}


RECORD = 'r2ccl/tests/simulation/put_back.csv'
COLUMNS = ['name', 'found', 'histories', 'seconds', 'seed', 'violation', 'commit']
TABLE = re.compile(r'(<!-- put back -->\n).*?(<!-- end -->)', re.DOTALL)


def records(path):
    if not path.exists():
        return {}
    with open(path, newline='') as file:
        return {row['name']: row for row in csv.DictReader(file)}


def write_record(path, row):
    rows = records(path)
    rows[row['name']] = row
    with open(path, 'w', newline='') as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator='\n')
        writer.writeheader()
        writer.writerows(rows[name] for name in DEFECTS if name in rows)


def shown(name):
    return f'`{name}`' if re.fullmatch(r'[a-z_]+', name) else name


def table(rows):
    """Markdown: what was found, quickest first; then what was not."""
    lines = ['| removed, or reintroduced | histories | seconds | seed | what it showed |', '|---|---|---|---|---|']
    found = [row for row in rows.values() if row['found'] == 'yes']
    lines += [f"| {shown(row['name'])} | {row['histories']} | {row['seconds']} | {row['seed']} | {row['violation']} |"
              for row in sorted(found, key=lambda row: int(row['histories']))]
    lines += [f"| {shown(row['name'])} | not in {row['histories']} | {row['seconds']} | | |" for row in rows.values() if row['found'] != 'yes']
    lines += [f'| {shown(name)} | not run | | | |' for name in DEFECTS if name not in rows]
    return '\n'.join(lines) + f'\n\n{len(found)} of {len(DEFECTS)} were found.\n'


def readme(folder):
    """The README of that folder: its text, and what it should be by the record beside it."""
    rows = {name: row for name, row in records(folder / 'put_back.csv').items() if name in DEFECTS}
    text = (folder / 'README.md').read_text()
    return text, TABLE.sub(lambda match: match.group(1) + table(rows) + match.group(2), text)


def check(checkout):
    wrong = [f'{name}: {file} has {count} times {there!r}' for name, changes in DEFECTS.items() for file, there, _ in changes
             if (count := (checkout / file).read_text().count(there)) != 1]
    text, wanted = readme((checkout / RECORD).parent)
    if text != wanted:
        wrong.append('README.md: its table is not what put_back.csv says; run put_back.py --readme')
    print('\n'.join(wrong) or f'{len(DEFECTS)} defects can be reintroduced')
    return 1 if wrong else 0


def build(args):
    """None, or the end of what the compiler said."""
    built = subprocess.run(['cmake', '--build', args.build, '--target', 'simulate'], cwd=args.checkout, capture_output=True, text=True)
    return None if built.returncode == 0 else built.stdout[-300:]


@contextlib.contextmanager
def changed(checkout, name):
    """The sources with that defect; afterwards as they were."""
    before = {}
    try:
        for file, there, put in DEFECTS[name]:
            path = checkout / file
            text = path.read_text()
            before.setdefault(path, text)
            if there not in text:
                sys.exit(f'{name}: {file} does not have {there!r}')
            path.write_text(text.replace(there, put, 1))
        yield
    finally:
        for path, text in before.items():
            path.write_text(text)


def search(args, name, correct, commit):
    """A line of the record. `correct`: the program without a defect, in which the history that was found must be right."""
    began = time.monotonic()
    ran = subprocess.run([args.checkout / args.build / 'bin/simulate', '--seeds', '1000000000', '--minutes', str(args.minutes), '--jobs', str(args.jobs)],
                         capture_output=True, text=True)
    found = re.search(r'after ([0-9.]+) s: seed (\d+): (.*)', ran.stdout)
    count = re.search(r'(\d+) histories', ran.stdout)
    row = {'name': name, 'found': 'yes' if found else 'no', 'histories': count.group(1) if count else 0,
           'seconds': found.group(1) if found else f'{time.monotonic() - began:.0f}', 'seed': found.group(2) if found else '',
           'violation': re.sub(r'\s+', ' ', found.group(3))[:110] if found else '', 'commit': commit}
    if found and subprocess.run([correct, '--replay', row['seed']], capture_output=True, check=False).returncode != 0:
        row['found'], row['violation'] = 'no', 'the seed is wrong without the defect, too'
    return row


def search_all(args):
    commit = origin.of_checkout(args.checkout, but=[RECORD])
    if failed := build(args):
        sys.exit(f'it does not build without a defect: {failed}')
    correct = shutil.copy2(args.checkout / args.build / 'bin/simulate', args.checkout / args.build / 'bin/simulate_correct')
    missed = []
    try:
        for name in args.only or DEFECTS:
            with changed(args.checkout, name):
                if failed := build(args):
                    print(f'{name}: it does not build: {failed}', flush=True)
                    missed.append(name)
                    continue
                row = search(args, name, correct, commit)
            write_record(args.checkout / RECORD, row)
            print(' | '.join(str(row[column]) for column in COLUMNS), flush=True)
            if row['found'] != 'yes':
                missed.append(name)
    finally:
        pathlib.Path(correct).unlink()
        build(args)  # without a defect
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0].replace('\n', ' '))
    parser.add_argument('checkout', type=pathlib.Path, nargs='?', help='checkout whose sources are changed and restored')
    parser.add_argument('build', nargs='?', help='its build folder, configured with R2CCL_BUILD_TESTS')
    parser.add_argument('--minutes', type=float, default=10, help='longest search for one defect (default: 10)')
    parser.add_argument('--jobs', type=int, default=1, help='histories at a time (default: 1)')
    parser.add_argument('--readme', action='store_true', help="write the README's table from the record, and end")
    parser.add_argument('--check', action='store_true', help='check that each text to be changed is in the checkout exactly once, and that the README has the record, and end')
    parser.add_argument('--only', nargs='+', metavar='NAME', help='search for these defects only; exit status 1 if one of them is not found')
    args = parser.parse_args()
    if args.readme:
        (HERE.parent / 'README.md').write_text(readme(HERE.parent)[1])
        return 0
    if args.check:
        return check(args.checkout or pathlib.Path('.'))
    if not args.checkout or not args.build:
        parser.error('CHECKOUT and BUILD are needed')
    if unknown := [name for name in args.only or [] if name not in DEFECTS]:
        parser.error(f'no such defect: {", ".join(map(repr, unknown))}')
    return search_all(args)


if __name__ == '__main__':
    sys.exit(main())
