"""Pass the result of each step to the next one, and that of the last one to gpurun.

A dict adds columns to the batch, and the columns keep their type: a tensor on the GPU
is still a tensor on the GPU in the next step. A list replaces each record.
"""

import collections.abc

from gpurun_runner.batch import Batch
from gpurun_runner.columns import listed
from gpurun_runner.failure import BATCH, ERROR, CountError, ResultError, first_line, kind_of, not_a_column, plural, reported
from gpurun_runner.record import Record
from gpurun_runner.reply import Reply, check_names


def set_columns(result):
    """The columns that the kernel has set in a batch that it returns; otherwise the result
    itself."""
    if not isinstance(result, Batch) or not result._assigned:
        return result
    if result._records and any(isinstance(record, Record) and record.touched() for record in result._records):
        raise ResultError("process returned a batch in which it set both columns and members of records: set one or the other")
    return result._assigned


def is_columns(result):
    return isinstance(result, collections.abc.Mapping) and not isinstance(result, Record)


def as_list(result, count):
    """A result with one entry per record, as a list."""
    if result is None:
        raise ResultError("process returned None: return a dict of columns, or a list with one result per record")
    if not isinstance(result, (list, tuple, Batch)):
        if hasattr(result, "iloc") or hasattr(result, "to_pandas"):
            raise ResultError('process returned %s: return the columns to add, like {"name": table["name"]}' % kind_of(result))
        raise ResultError('process returned %s: return a dict of columns, like {"name": values}, '
                          "or a list with one result per record: %s" % (kind_of(result), BATCH))
    if len(result) != count:
        raise CountError("process returned %s for %s: return one for each, None to drop a record, or a list of dicts to make several of it"
                         % (plural(len(result), "result"), plural(count, "record")))
    return list(result)


# From one step to the next.


def advance(task, result, following):
    """The batch for the next step. Failed and dropped records are noted in task."""
    result = set_columns(result)
    if is_columns(result):
        return add_columns(task, result, following)
    return replace(task, as_list(result, len(task.batch)), following)


def add_columns(task, result, following):
    count, added, failed = len(task.batch), {}, {}
    for name, values in result.items():
        if not isinstance(name, str):
            raise ResultError("process returned a column named %r: column names must be strings" % (name,))
        if isinstance(values, (str, bytes, collections.abc.Mapping)) or not hasattr(values, "__iter__"):
            raise not_a_column(name, values, count)
        if hasattr(values, "iloc"):  # pandas indexes values by label, not by position
            values = values.to_numpy()
        if not hasattr(values, "shape"):
            values = listed(values, count, "value", " in column %r" % name)
            failed.update((i, first_line(value)) for i, value in enumerate(values) if isinstance(value, BaseException))
        elif len(values.shape) == 0:
            raise CountError("column %r is a single value, not one for each of %s" % (name, plural(count, "record")))
        if len(values) != count:
            raise CountError("process returned %s in column %r for %s" % (plural(len(values), "value"), name, plural(count, "record")))
        added[name] = values
    for i, value in enumerate(added.pop(ERROR, ())):
        if value is not None:
            failed.setdefault(i, reported(value))
    batch = task.batch
    task.batch = Batch(batch._source, following, batch._rows, {**batch._extra, **added}, batch._items)
    if failed:
        task.refuse(failed)
    return task.batch


def replace(task, results, following):
    """The batch of the records that a step returned. If it changed none of them, they stay
    as they were, with the columns added so far."""
    failed = {i: message for i, message in enumerate(map(rejection, results)) if message is not None}
    if failed:
        rows = task.batch._all_rows()
        failed_rows = {rows[i] for i in failed}
        results = [result for row, result in zip(rows, results) if row not in failed_rows]
        task.refuse(failed)
    rows, made = task.batch._all_rows(), [lines_of(result) for result in results]
    kept = [i for i, lines in enumerate(made) for _ in lines]
    task.dropped.extend(sorted(set(rows).difference(rows[i] for i in kept)))
    items = [own(line, lines) for lines in made for line in lines]
    batch = task.batch._only(kept)
    rows = batch._all_rows()
    if all(isinstance(item, Record) and not item.touched() and item.is_record_of(batch._source, rows, i) for i, item in enumerate(items)):
        return Batch(batch._source, following, batch._rows, batch._extra, batch._items)
    return Batch(batch._source, following, batch._rows, None, [as_item(item, batch._source) for item in items])


def rejection(result):
    """Why the kernel rejects a record; None if it does not."""
    if isinstance(result, BaseException):
        return first_line(result)
    for line in lines_of(result):
        if isinstance(line, Record) and not line.touched():
            continue  # an _error member of the input is not the kernel's
        if isinstance(line, collections.abc.Mapping) and line.get(ERROR) is not None:
            return reported(line[ERROR])
    return None


def lines_of(result):
    """The lines that a record became: none, one or several."""
    if result is None:
        return []
    return result if isinstance(result, (list, tuple)) else [result]


def own(line, lines):
    """A line that shares no list with another line of the same record."""
    if len(lines) == 1 or not isinstance(line, collections.abc.Mapping) or isinstance(line, Record) and not line.touched():
        return line
    return {name: copied(value) for name, value in line.items()}


def copied(value):
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def as_item(item, source):
    if not isinstance(item, collections.abc.Mapping):
        raise ResultError("process returned %s for a record: return a dict" % kind_of(item))
    if isinstance(item, Record) and item._source is source and not item.touched():
        return item
    check_names(item)
    return dict(item)


# From the last step to gpurun.


def last_reply(task, result):
    """The reply for the result of the last step."""
    batch, result = task.batch, set_columns(result)
    rows = batch._all_rows()
    one_each = batch._rows is None or len(set(rows)) == len(rows)
    if is_columns(result):
        if one_each and not batch._items:
            reply = Reply(len(batch), task.program.encoder)
            reply.take_columns({**batch._extra, **result})
            return reply
        result = with_columns(batch, result)
    results = as_list(result, len(batch))
    if not one_each:
        rows, results = gather(rows, results)
    reply = Reply(len(results), task.program.encoder, batch._source, rows)
    reply.take_list(results)
    return reply


def with_columns(batch, columns):
    """The records with these columns added, for records that a step has replaced."""
    check = Reply(len(batch), None)
    check_names(columns)
    records = [batch._record(i, row) for i, row in enumerate(batch._all_rows())]
    for name, values in columns.items():
        if isinstance(values, (str, bytes, collections.abc.Mapping)) or not hasattr(values, "__iter__"):
            raise not_a_column(name, values, len(batch))
        if not hasattr(values, "shape"):
            values = listed(values, len(batch), "value", " in column %r" % name)
        check.check(name, getattr(values, "shape", (len(values),)))
        for i, value in enumerate(values):
            if isinstance(value, BaseException):
                records[i] = value
            elif not isinstance(records[i], BaseException):
                records[i][name] = value
    return records


def gather(rows, results):
    """Group the results that came from the same record. Return the rows and the results of each."""
    groups = {}
    for row, result in zip(rows, results):
        groups.setdefault(row, []).extend(result if isinstance(result, (list, tuple)) else [result])
    gathered = []
    for group in groups.values():
        failed = [result for result in group if isinstance(result, BaseException)]
        lines = [result for result in group if result is not None]
        gathered.append(failed[0] if failed else lines)
    return list(groups), gathered
