# fish completion of lazaret; generated, do not edit.

function __lazaret_at --description 'test which command the words typed so far name'
    set -l cmd ''
    set -l typed (commandline -opc)
    for word in $typed[2..-1]
        switch "$cmd $word"
            case ' init'
                set cmd 'init'
            case ' doctor'
                set cmd 'doctor'
            case ' config'
                set cmd 'config'
            case ' trust'
                set cmd 'trust'
            case ' completion'
                set cmd 'completion'
            case ' help'
                set cmd 'help'
            case 'config show'
                set cmd 'config show'
            case 'config check'
                set cmd 'config check'
        end
    end
    test "$cmd" = "$argv[1]"
end

complete -c lazaret -f
complete -c lazaret -n '__lazaret_at \'\'' -a init -d 'register lazaret as a runtime of podman'
complete -c lazaret -n '__lazaret_at \'\'' -a doctor -d 'check whether this machine can run sandboxes'
complete -c lazaret -n '__lazaret_at \'\'' -a config -d 'show or check the configuration'
complete -c lazaret -n '__lazaret_at \'\'' -a trust -d 'let the configuration file of a workspace loosen the sandbox'
complete -c lazaret -n '__lazaret_at \'\'' -a completion -d 'print the completion script of a shell'
complete -c lazaret -n '__lazaret_at \'\'' -a help -d 'show the help of a command'
complete -c lazaret -n '__lazaret_at \'\'' -l version -d 'print version and commit'
complete -c lazaret -n '__lazaret_at \'\'' -l help -s h -d 'show help'
complete -c lazaret -n '__lazaret_at \'init\'' -l scope -x -a 'user system' -d 'whose podman: user|system; root means system if not told otherwise, others user'
complete -c lazaret -n '__lazaret_at \'init\'' -l runtime-path -r -F -d 'FILE to register; beside lazaret if not given'
complete -c lazaret -n '__lazaret_at \'init\'' -l podman-version -x -d 'write for podman VERSION, not for the installed one'
complete -c lazaret -n '__lazaret_at \'init\'' -l dry-run -d 'show the change and touch nothing'
complete -c lazaret -n '__lazaret_at \'init\'' -l uninstall -d 'remove the drop-in again'
complete -c lazaret -n '__lazaret_at \'init\'' -l force -d 'replace or remove a drop-in that was changed by hand; a copy is kept'
complete -c lazaret -n '__lazaret_at \'init\'' -l help -s h -d 'show help'
complete -c lazaret -n '__lazaret_at \'doctor\'' -l json -d 'print one JSON object with all checks'
complete -c lazaret -n '__lazaret_at \'doctor\'' -l help -s h -d 'show help'
complete -c lazaret -n '__lazaret_at \'config\'' -a show -d 'print every effective value and where it comes from'
complete -c lazaret -n '__lazaret_at \'config\'' -a check -d 'report every mistake with file, line and key'
complete -c lazaret -n '__lazaret_at \'config\'' -l help -s h -d 'show help'
complete -c lazaret -n '__lazaret_at \'config show\'' -l profile -x -d 'leave out the other profiles than NAME'
complete -c lazaret -n '__lazaret_at \'config show\'' -l json -d 'print one JSON object'
complete -c lazaret -n '__lazaret_at \'config show\'' -l config -r -F -d 'read FILE above all other layers'
complete -c lazaret -n '__lazaret_at \'config show\'' -l workspace -r -F -d 'take the lazaret.toml of DIR'
complete -c lazaret -n '__lazaret_at \'config show\'' -l help -s h -d 'show help'
complete -c lazaret -n '__lazaret_at \'config check\'' -F
complete -c lazaret -n '__lazaret_at \'config check\'' -l config -r -F -d 'read FILE above all other layers'
complete -c lazaret -n '__lazaret_at \'config check\'' -l workspace -r -F -d 'take the lazaret.toml of DIR'
complete -c lazaret -n '__lazaret_at \'config check\'' -l help -s h -d 'show help'
complete -c lazaret -n '__lazaret_at \'trust\'' -F
complete -c lazaret -n '__lazaret_at \'trust\'' -l yes -s y -d 'do not ask'
complete -c lazaret -n '__lazaret_at \'trust\'' -l revoke -d 'trust the file no longer'
complete -c lazaret -n '__lazaret_at \'trust\'' -l list -d 'list the trusted files'
complete -c lazaret -n '__lazaret_at \'trust\'' -l help -s h -d 'show help'
complete -c lazaret -n '__lazaret_at \'completion\'' -a 'bash zsh fish'
complete -c lazaret -n '__lazaret_at \'completion\'' -l help -s h -d 'show help'
complete -c lazaret -n '__lazaret_at \'help\'' -l help -s h -d 'show help'
