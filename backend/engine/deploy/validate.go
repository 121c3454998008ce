package deploy

import (
	"fmt"

	"carillon/backend/core/cron"
	"carillon/backend/core/schema"
)

// validate refuses a schema with ErrInvalid and all its faults, each with the field that it is about.
func (e *Engine) validate(s schema.Module) error {
	if len(schema.Validate(s, e.c.Now())) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", cron.ErrInvalid, schema.ValidateSource(s, fields(s), e.c.Now()))
}

// fields are the places of a schema that came over the wire: the fields of its message.
func fields(s schema.Module) schema.Where {
	at := func(field string) schema.Place {
		return schema.Place{Span: schema.Span{Position: schema.Position{File: field}}}
	}
	where := schema.Where{
		{Verb: -1, Name: schema.PartName}:     at("schema.module"),
		{Verb: -1, Name: schema.PartLanguage}: at("schema.language"),
	}
	for i := range s.Verbs {
		verb := fmt.Sprintf("schema.verbs[%d].", i)
		for part, field := range map[string]string{
			schema.PartName: "name", schema.PartRequest: "request", schema.PartResponse: "response", "cron": "cron.schedule",
			"timezone": "cron.time_zone", "timeout": "cron.timeout", "catchup": "cron.catchup", "overlap": "cron.overlap",
			"retry": "retry", "concurrency": "concurrency", "unique": "unique",
		} {
			if part == "timeout" && s.Verbs[i].Cron == nil {
				field = part
			}
			where[schema.Part{Verb: i, Name: part}] = at(verb + field)
		}
	}
	for i, d := range s.Data {
		data := fmt.Sprintf("schema.data[%d].", i)
		where[schema.PartData(i)] = at(data + "name")
		for j := range d.Fields {
			where[schema.PartField(i, j)] = at(fmt.Sprintf("%sfields[%d].name", data, j))
			where[schema.PartFieldType(i, j)] = at(fmt.Sprintf("%sfields[%d].type", data, j))
		}
	}
	return where
}
