"""Make plans. A plan lists everything that a run reads, updates and writes, in order, with the predicted cost. This
package uses no files, threads or clock."""
