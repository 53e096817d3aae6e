% Writes all that Octave's netcdf package finds in argv(){1} into the folder argv(){2}: index.tsv and one file of raw values per item.
1;

function put (folder, kind, path, name, value)
  global index count
  count += 1;
  item = sprintf ("%d.bin", count);
  out = fopen (fullfile (folder, item), "w");
  if (ischar (value))
    fwrite (out, uint8 (value), "uint8");
  else
    fwrite (out, value, class (value));
  endif
  fclose (out);
  fprintf (index, "%s\t%s\t%s\t%s\t%s\n", kind, path, name, class (value), item);
endfunction

function walk (file, folder, info, path)
  put_attributes (folder, info.Attributes, path);
  if (isfield (info, "Variables"))
    for i = 1:numel (info.Variables)
      variable = info.Variables(i);
      full = [path "/" variable.Name];
      put (folder, "variable", full, "", ncread (file, full));
      put_attributes (folder, variable.Attributes, full);
    endfor
  endif
  if (isfield (info, "Groups"))
    for i = 1:numel (info.Groups)
      walk (file, folder, info.Groups(i), [path "/" info.Groups(i).Name]);
    endfor
  endif
endfunction

function put_attributes (folder, attributes, path)
  for i = 1:numel (attributes)
    put (folder, "attribute", path, attributes(i).Name, attributes(i).Value);
  endfor
endfunction

pkg load netcdf
global index count
count = 0;
index = fopen (fullfile (argv (){2}, "index.tsv"), "w");
walk (argv (){1}, argv (){2}, ncinfo (argv (){1}), "");
fclose (index);
