// Package arrow is what the reader and the writer of Arrow's IPC formats share: the numbers of the
// formats (Schema.fbs, Message.fbs and File.fbs of Apache Arrow), and the tables of FlatBuffers that
// describe a file.
//
//	file:    ARROW1 ─ messages ─ end ─ footer: schema, places of the messages ─ its length ─ ARROW1
//	stream:  messages ─ end
//	message: ffffffff ─ length ─ table ─ body
//
// The first message is the schema. The others are record batches, which are rows, and dictionaries.
package arrow
